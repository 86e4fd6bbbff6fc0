"""When a first compiled call holds the device: between compilations, and not while torch compiles."""

from contextlib import contextmanager

import pytest
import torch
import torch._dynamo

from collector.measure.autotuning import held_between_compilations, released_while_compiling


class Device:
    """Says of every moment that is noted whether the device was held, and how often it was taken."""

    def __init__(self):
        self.is_held, self.taken, self.noted = False, 0, []

    @contextmanager
    def take(self):
        assert not self.is_held, "it is taken once at a time"
        self.is_held, self.taken = True, self.taken + 1
        try:
            yield
        finally:
            self.is_held = False

    def note(self, what):
        self.noted.append((what, self.is_held))


@pytest.fixture
def device():
    torch._dynamo.reset()
    yield Device()
    torch._dynamo.reset()


def backend(device, forward=lambda _: None):
    """A compiler that notes when it compiles and when its graphs run."""

    def compile_graph(graph, _):
        device.note("compile")
        forward(graph)

        def run(*args):
            device.note("run")
            return graph(*args)

        return run

    return compile_graph


def first_called(device, function, *args, **options):
    compiled = torch.compile(function, **options)
    with held_between_compilations(device.take):
        made = compiled(*args)
    assert not device.is_held
    return made


def test_a_graph_break_gives_the_device_back_for_the_second_graph(device):
    def breaks(x):
        y = x.sin()
        torch._dynamo.graph_break()
        device_note("between")
        return y.cos()

    device_note = torch._dynamo.disable(device.note)
    first_called(device, breaks, torch.ones(2), backend=backend(device))
    assert device.noted[:2] == [("compile", False), ("run", True)]
    assert ("between", True) in device.noted
    assert device.noted[-2:] == [("compile", False), ("run", True)]
    assert device.taken >= 2


def test_after_an_exception_or_a_reset_nothing_is_held(device):
    def fails(_):
        raise RuntimeError("no such kernel")

    with pytest.raises(Exception, match="no such kernel"):
        first_called(device, lambda x: x.sin(), torch.ones(2), backend=backend(device, fails))
    assert not device.is_held
    device.noted.clear()
    for factor in (1.0, 2.0):
        torch._dynamo.reset()
        first_called(device, lambda x, factor=factor: x * factor, torch.ones(2), backend=backend(device))
    assert device.noted == [("compile", False), ("run", True)] * 2
    taken = device.taken
    torch.compile(lambda x: x.tan(), backend=backend(device))(torch.ones(2))
    assert device.taken == taken, "no first call is under way"
    assert device.noted[-2:] == [("compile", False), ("run", False)]


def test_what_torch_announces_but_runs_on_the_device_keeps_it(device):
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    def records(graph, _):
        def run(*args):
            with callback_handler.install_callbacks(CallbackTrigger.CUDAGRAPH_RECORDING, "0/0"):
                device.note("record")
            device.note("run")
            return graph(*args)

        return run

    first_called(device, lambda x: x.sin(), torch.ones(2), backend=records)
    assert device.noted == [("record", True), ("run", True)]
    assert device.taken == 1


def test_what_is_held_is_released_for_each_compilation_alone(device):
    @contextmanager
    def release():
        device.is_held = False
        yield
        device.is_held = True

    compiled = torch.compile(lambda x: x.sin(), backend=backend(device))
    device.is_held = True
    with released_while_compiling(release):
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    assert device.noted == [("compile", False), ("run", True), ("run", True)]
    assert device.is_held

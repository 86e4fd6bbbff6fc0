"""How much device memory a comparison asks for, and which reference it takes."""

import weakref
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

from collector.correctness import checking, reference
from collector.correctness.reference import Room
from collector.cpu_device import CpuDevice
from collector.vocabulary import Phase, Status
from tests.collector.correctness.test_checking import Does, check_of, layer, subject_of

GB = 10**9


class Asked:
    def __init__(self):
        self.holds = []

    @contextmanager
    def hold(self, purpose, needs):
        self.holds.append((purpose, needs))
        yield


def checked(room, model, phase=Phase.INFERENCE, dtype="bfloat16", device="cpu"):
    return check_of(subject_of(model, phase, dtype, device=device), room=room)


@pytest.mark.parametrize(
    ("peak", "dtype", "for_cells", "by", "growth", "not_taken"),
    [
        (0.5, "bfloat16", 76, "float64", 4.0, {}),
        # Not a small part of the device: float32 is enough for a program in half of it, and nothing else for one in float32.
        (2, "bfloat16", 76, "float32", 2.0, {"no_float64": "float32 is precise enough"}),
        (20, "float32", 76, "float64", 2.0, {}),
        (20, "as_is", 76, "float64", 2.0, {}),
        # More than anybody could wait for.
        (40, "bfloat16", 76, "cosine", None, {"no_float32": "more than there is"}),
        (0.5, "bfloat16", 2, "float32", 2.0, {"no_float64": "more than there is"}),
    ],
)
def test_the_reference_is_the_most_precise_one_that_has_room(peak, dtype, for_cells, by, growth, not_taken):
    asked = Asked()
    room = Room(asked.hold, "cpu", int(peak * GB), 80 * GB, for_cells * GB)
    outcome = checked(room, layer(), dtype=dtype)
    details = outcome.measurement.details
    assert (outcome.measurement.status, details["checked_by"]) == (Status.PASS, by)
    assert asked.holds == ([("device", room.for_reference(growth))] if growth else [])
    for name, words in not_taken.items():
        assert words in details[name]
        assert "GB of device memory" in details[name]
    assert not outcome.lacked_room, "waiting would have changed nothing"


def test_what_runs_out_of_memory_is_tried_again_with_twice_as_much(monkeypatch):
    asked, tries, limits = Asked(), [], []

    @contextmanager
    def limited(_, limit):
        limits.append(limit())
        yield

    def raises(*errors):
        left = list(errors)
        tries.clear()

        def action():
            tries.append("tried")
            if left:
                raise left.pop()
            return "made"

        return action

    monkeypatch.setattr(CpuDevice, "limited", limited)
    room = Room(asked.hold, "cpu", GB, 80 * GB, 76 * GB)
    assert room.run(3 * GB, raises(OOM, OOM)) == "made"
    assert asked.holds == [("device", 3 * GB), ("device", 6 * GB), ("device", 12 * GB)]
    assert limits == [3 * GB, 6 * GB], "the last try has no limit"
    # Neither what is no want of memory, nor what cannot have twice as much, is tried again.
    for needs, error, count in [(3 * GB, OOM, 3), (3 * GB, NO_KERNEL, 1), (40 * GB, OOM, 1), (None, OOM, 1)]:
        with pytest.raises(type(error)):
            room.run(needs, raises(*[error] * 3))
        assert len(tries) == count
    assert (Room().for_calls(), Room().for_reference(4.0)) == (None, None), "nothing is known"
    limits.clear()
    promised = Room(asked.hold, "cpu", GB, 80 * GB, 76 * GB, promised=lambda: 5 * GB)
    assert promised.run(3 * GB, raises(OOM, OOM)) == "made"
    assert limits == [5 * GB, 6 * GB], "it does not try with less than it has"


@pytest.mark.parametrize("fails", [1, 3])
def test_copies_are_gone_before_the_device_is_given_back(fails):
    alive, models = [], []

    @contextmanager
    def hold(*_):
        try:
            yield
        finally:
            alive.append([model() is not None for model in models])

    def action():
        model = nn.Linear(2, 2)
        model.step = lambda: model  # as a model's own step does
        models.append(weakref.ref(model))
        if len(models) <= fails:
            raise OOM
        return "made"

    room = Room(hold, "cpu", GB, 80 * GB, 76 * GB)
    with pytest.raises(torch.OutOfMemoryError) if fails == 3 else nullcontext():
        assert room.run(3 * GB, action) == "made"
    assert alive == [[False] * (number + 1) for number in range(min(3, fails + 1))]


OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
ALLOC = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
NO_KERNEL = NotImplementedError('"addmm_impl" not implemented for this type')


def test_memory_that_ran_out_counts_where_no_reference_decided():
    float64, float32 = torch.float64, torch.float32
    for errors, by, lacked in (
        ({float64: OOM}, "float32", ["float64"]),
        ({float64: NO_KERNEL, float32: ALLOC}, "cosine", ["float32"]),
    ):
        outcome = checked(Room(), layer(errors=errors))
        details = outcome.measurement.details
        assert details["checked_by"] == by
        assert [name for name in ("float64", "float32") if details.get(f"no_room_for_{name}")] == lacked
        assert outcome.lacked_room is (by == "cosine"), "the cell is measured again where more memory could tell more"
        assert all(f"no_{str(dtype).removeprefix('torch.')}" in details for dtype in errors)


@pytest.mark.parametrize(
    ("factor", "jumps", "status"),
    [(1.0, True, Status.PASS), (0.5, True, Status.NOT_CHECKED), (0.5, False, Status.FAIL_ACCURACY)],
)
def test_memory_lacking_for_near_ties_counts_where_a_cell_does_not_pass(monkeypatch, factor, jumps, status):
    def no_room(*_):
        raise OOM

    monkeypatch.setattr(checking, "part_ties", no_room)
    monkeypatch.setattr(checking, "jumping", lambda *_: {"output": None} if jumps else {})
    monkeypatch.setattr(checking, "part_jumps", lambda *_: None)
    outcome = checked(Room(), layer(factor))
    assert outcome.measurement.status is status
    assert "OutOfMemoryError" in outcome.measurement.details["no_near_ties"]
    assert outcome.lacked_room is (status is not Status.PASS)


FULL = {torch.float64: OOM, torch.float32: OOM}


def small(host=100 * GB, peak=8 * GB, **fields):
    """A device of which an eager call takes a half."""
    return Room(eager_peak=peak, total=16 * GB, host_memory=lambda: host, **fields)


@pytest.mark.parametrize(
    ("dtype", "by", "factor", "status"),
    [("amp", "float32 on the CPU", 1.1, Status.FAIL_ACCURACY), ("float32", "float64 on the CPU", 1.0, Status.PASS)],
)
def test_a_reference_without_room_on_the_device_is_made_on_the_host(dtype, by, factor, status):
    asked, seen, released = Asked(), [], []

    @contextmanager
    def release():
        released.append(True)
        yield
        released.clear()

    def note(module, _):
        if released:
            seen.append(module.linear.weight.dtype)

    model = layer(factor)
    model.register_forward_pre_hook(note)
    outcome = checked(small(release=release, hold=asked.hold), model, dtype=dtype)
    found = outcome.measurement
    assert (found.status, found.details["checked_by"]) == (status, by)
    assert "more than there is" in found.details[f"no_{by.split()[0]}"]
    assert "error_rmse_ratio" in found.metrics
    assert seen == [torch.float64 if dtype == "float32" else torch.float32]
    assert not outcome.lacked_room, "the host decided"


def choosing(factor):
    """Sends each row through one of two layers, and returns which, its values, and an integer."""

    def choose(model, x, factor=1.0):
        chosen = model.gate(x).argmax(-1)
        return torch.where((chosen == 0)[:, None], model.linear(x) * factor, model.other(x)), chosen

    layers = {"gate": nn.Linear(32, 2), "linear": nn.Linear(32, 16), "other": nn.Linear(32, 16)}
    return Does(choose, lambda model, x: choose(model, x, factor), **layers)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "phase"), [(layer, Phase.INFERENCE), (layer, Phase.TRAINING), (choosing, Phase.INFERENCE)]
)
@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASS), (1.1, Status.FAIL_ACCURACY)])
def test_a_reference_on_the_host_judges_outputs_on_the_device(kind, phase, factor, status):
    found = checked(small(device="cuda"), kind(factor), phase, device="cuda").measurement
    assert (found.status, found.details["checked_by"]) == (status, "float32 on the CPU"), found.failure


@pytest.mark.parametrize(
    ("room", "errors", "why", "lacked"),
    [
        (small(host=8 * GB), {}, "MemoryError: it would take 24.0 GB of the host's memory, which has 8.0 ", False),
        (Room(host_memory=lambda: None), FULL, "OutOfMemoryError", True),
        (Room(), FULL, None, True),
    ],
)
def test_without_any_reference_a_disagreement_is_no_failure(room, errors, why, lacked):
    outcome = checked(room, layer(-1.0, errors))
    found = outcome.measurement
    assert found.details["checked_by"] == "cosine"
    assert ("no_float32_on_cpu" in found.details) is bool(why)
    assert (why or "") in found.details.get("no_float32_on_cpu", "")
    assert (found.status, outcome.lacked_room) == (Status.NOT_CHECKED, lacked)
    assert "cosine similarity -1.0000, below 0.99, and no reference can tell: " in found.failure.message
    assert (why or "OutOfMemoryError") in found.failure.message
    assert "memory" in found.failure.hint


def test_what_is_wrong_for_certain_is_a_failure_without_a_reference_too(monkeypatch):
    found = checked(Room(), layer(-1.0, dict.fromkeys(FULL, NO_KERNEL))).measurement
    assert found.status is Status.FAIL_ACCURACY, "it is not memory that lacks"
    infinite = Does(lambda _, x: (x * 2, x * 1.0), lambda _, x: (x * -2, x.masked_fill(x > 0, torch.inf)))
    found = checked(small(host=0), infinite).measurement
    assert found.status is Status.FAIL_ACCURACY
    assert "values are NaN or infinite" in found.failure.message
    monkeypatch.setattr(reference, "CPU_LIMIT_S", 0.0)
    found = checked(small(), layer()).measurement
    assert (found.status, found.details["checked_by"]) == (Status.PASS, "cosine"), "the host takes too long"
    assert found.details["no_float32_on_cpu"].startswith("TooSlowError: more than 0 s on the host's processor")


def test_a_twin_has_one_weight_where_its_model_has_one_and_wider_numbers():
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    layers[1].weight = layers[0].weight
    model = Does(lambda model, x: model.layers(x), layers=layers, turns=torch.ones(8, dtype=torch.complex64))
    twin = subject_of(model, dtype="bfloat16", inputs=torch.randn(4, 8)).twin(torch.float64).model
    assert twin.layers[0].weight is twin.layers[1].weight is not layers[0].weight
    assert (twin.layers[0].weight.dtype, twin.turns.dtype) == (torch.float64, torch.complex128)

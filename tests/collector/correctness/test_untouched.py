"""A compiled program keeps the form of outputs and what eager leaves alone; what a call starts from is put back."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.fx.immutable_collections import immutable_list

from collector.correctness import checking
from collector.correctness.snapshot import layout_of, other_strides, wrong_form
from collector.correctness.state import State, fingerprint
from collector.vocabulary import Config, Phase, Status
from tests.collector.correctness.test_checking import Does, caches, checked, outcome_of, spoiling, subject_of


def touches(what=None, by=1.015):
    """Changes, where it is compiled, one of its tensors behind the result's back."""

    def multiply(model, x):
        return model.linear(x.clone()) * model.scale.clone()

    def touch(model, x):
        out = multiply(model, x)
        with torch.no_grad():
            {"input 0": x, "linear.weight": model.linear.weight, "scale": model.scale}[what].mul_(by)
        return out

    return Does(multiply, touch if what else None, linear=nn.Linear(32, 16), scale=torch.full((16,), 0.5))


@pytest.mark.parametrize(
    ("what", "dtype", "by", "phase"),
    [
        ("input 0", "bfloat16", 1 + 2**-7, Phase.INFERENCE),
        ("linear.weight", "float32", 1.015, Phase.INFERENCE),
        ("scale", "float32", 1.015, Phase.INFERENCE),
        ("input 0", "float32", 1.015, Phase.TRAINING),
    ],
)
def test_a_tensor_that_only_the_compiled_program_changes_fails(what, dtype, by, phase):
    assert checked(touches(), phase, dtype).failure is None
    found = checked(touches(what, by), phase, dtype)
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.message.startswith(f"state['{what}']: the compiled program changes it")


@pytest.mark.parametrize(("calls", "spoilt"), [(0, 1), (1, 1), (0, 4)])
def test_a_weight_that_an_earlier_or_a_later_call_changes_fails(calls, spoilt):
    subject = subject_of(touches())
    subject.state.remember()
    compiled = spoiling(subject, spoilt)
    for _ in range(calls):
        compiled()
    found = outcome_of(subject, compiled)
    assert found.status is Status.FAIL_ACCURACY
    assert "state['linear.weight']" in found.failure.message


def test_targets_are_watched_and_what_eager_writes_is_judged_by_its_size():
    def add(model, x, what=1e-9):
        model.mean.add_(what)
        return x * 2

    assert checked(Does(add, lambda model, x: add(model, x, 1e-6), mean=torch.ones(4))).failure is None

    def loss(out, targets):
        found = (out - targets.clone()).square().mean()
        if torch.compiler.is_compiling():
            targets.mul_(1.015)
        return found

    found = outcome_of(subject_of(touches(), Phase.TRAINING, loss=loss, targets=torch.randn(64, 16)))
    assert "state['input 1']: the compiled program changes it" in found.failure.message


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64])
def test_a_fingerprint_minds_every_bit_and_the_order(dtype, monkeypatch):
    monkeypatch.setattr("collector.correctness.state._CHUNK", 10)
    x = (torch.arange(1000) % 7).to(dtype)
    assert torch.equal(fingerprint(x), fingerprint(x.clone()))
    swapped, other = x.clone(), x.clone()
    swapped[:2] = x[:2].flip(0)
    other[999] = not other[999] if dtype is torch.bool else other[999] + 1
    assert not any(torch.equal(fingerprint(x), fingerprint(changed)) for changed in (swapped, other))


def test_a_changed_buffer_is_put_back_in_its_storage_or_replaced():
    model = Does(None, mean=torch.zeros(3))
    state, place = State(model, ()), model.mean.data_ptr()
    model.mean.add_(1)
    state.put_back()
    assert (model.mean.tolist(), model.mean.data_ptr()) == ([0, 0, 0], place)
    model.mean = torch.ones(5, dtype=torch.float64)
    assert list(state.changed()) == ["state['mean']"]
    state.put_back()
    assert (model.mean.tolist(), model.mean.dtype) == ([0, 0, 0], torch.float32)


def either(eager, compiled=None):
    """A model that returns one form in eager and another one where it is compiled."""
    return Does(eager, compiled, table=torch.arange(2048.0).reshape(64, 32))


TUPLE, LIST = (lambda m, x: (x * 2, x + 1)), (lambda m, x: [x * 2, x + 1])
DICT, ORDERED = (lambda m, x: {"a": x * 2}), (lambda m, x: OrderedDict(a=x * 2))
VIEW, COPY = (lambda m, x: x[:, :4]), (lambda m, x: x[:, :4].clone())
ITSELF, CLONE = (lambda m, x: (x, x * 2)), (lambda m, x: (x.clone(), x * 2))
TABLE, OWN = (lambda m, x: m.table[:3] + 0), (lambda m, x: m.table[:3])
TURNED, STRAIGHT = (lambda m, x: (x * 2).t()), (lambda m, x: (x * 2).t().contiguous())


@pytest.mark.parametrize(
    ("eager", "compiled", "said"),
    [
        (TUPLE, LIST, "output: a list instead of a tuple"),
        (DICT, ORDERED, "output: a OrderedDict instead of a dict"),
        (lambda m, x: {"a": [x * 2]}, lambda m, x: {"a": (x * 2,)}, "['a']: a tuple instead of a list"),
        (VIEW, COPY, "output: a copy, in eager it shares the memory of input 0"),
        (COPY, VIEW, "output: it shares the memory of input 0, in eager it is a tensor of its own"),
        (ITSELF, CLONE, "[0]: a copy, in eager it shares the memory of input 0"),
        (TABLE, OWN, "output: it shares the memory of table, in eager it is a tensor of its own"),
    ],
)
def test_another_form_of_the_same_values_fails(eager, compiled, said):
    found = checked(either(eager, compiled))
    assert (found.status, found.failure.message) == (Status.FAIL_ACCURACY, said)


FORMS = [TUPLE, LIST, DICT, ORDERED, VIEW, COPY, ITSELF, CLONE, TABLE, OWN, TURNED]


@pytest.mark.parametrize(("backend", "forms"), [("aot_eager", FORMS), ("inductor", [OWN, LIST])])
def test_forms_that_are_kept_pass(forms, backend, own_cache):
    found = checked(either(lambda m, x: [form(m, x) for form in forms]), config=Config(backend=backend))
    assert (found.status, found.failure) == (Status.PASS, None)
    assert "other_strides" not in found.details
    # A list of fx is a list.
    assert wrong_form(layout_of({"a": [1]}, []), layout_of({"a": immutable_list([1])}, [])) is None


def test_other_strides_are_told_and_are_no_failure():
    found = checked(either(TURNED, STRAIGHT))
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.details["other_strides"] == {"output": "(64, 1) instead of (1, 32)"}
    one, two = torch.ones(1, 5), torch.ones(5, 2)[:, 0].reshape(1, 5)
    assert other_strides(layout_of(one, []), layout_of(two, [])) == {"output": "(2,) instead of (1,)"}
    assert other_strides(layout_of(torch.ones(5, 1), []), layout_of(torch.ones(1, 5).t(), [])) == {}, "of one index"


def test_calls_after_the_first_from_a_state_are_compared():
    def stale():
        """Be right in the first call from a state, and then go on from what is remembered."""
        fresh = bool((subject.model.cache == 0).all())
        made = subject.eager()
        return made if fresh else made * 0.5

    subject = subject_of(caches())
    assert outcome_of(subject, subject.eager).failure is None
    found = outcome_of(subject, stale)
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.message.startswith("after 3 calls in a row: output: ")


@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASS), (1.1, Status.FAIL_ACCURACY)])
def test_outputs_of_the_timed_program_that_are_not_random_are_compared(factor, status, monkeypatch):
    def drop(_, x, factor=1.0):
        return x * factor, nn.functional.dropout(x, 0.5)

    monkeypatch.setattr(checking, "_drawing_as_eager", lambda subject, *_: subject.eager)
    found = checked(Does(drop, lambda _, x: drop(_, x, factor)))
    assert found.status is status and found.details["random_outputs"]

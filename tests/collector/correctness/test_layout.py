"""Outputs in another container or in the memory of an input fail, other strides are told, later calls are compared."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.fx.immutable_collections import immutable_list

from collector.correctness import checking
from collector.correctness.snapshot import layout_of, other_strides, wrong_form
from collector.vocabulary import Config, Status
from tests.collector.correctness.test_checking import Does, caches, checked, outcome_of, subject_of


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

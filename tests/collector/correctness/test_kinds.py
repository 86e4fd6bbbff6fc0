"""Right models whose outputs are of an unusual kind pass, wrong ones fail, and a limit of the check is no failure."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from collector.correctness import checking
from collector.correctness.comparing import compare
from collector.correctness.pytorch_accuracy import Tolerance
from collector.correctness.snapshot import UnknownOutputError, parts_of, same_values, snapshot
from collector.vocabulary import NOT_APPLICABLE, Phase, Status
from tests.collector.correctness.test_checking import Does, checked

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def jagged(x):
    return torch.nested.nested_tensor([x[:3], x[:5], x], layout=torch.jagged)


KINDS = {
    "complex": torch.fft.fft,
    "conjugated": lambda x: torch.fft.fft(x).conj(),
    **{str(layout): lambda x, layout=layout: x.relu().to_sparse(layout=layout) for layout in LAYOUTS},
    "bsr": lambda x: x.relu().to_sparse_bsr((4, 4)),
    "jagged": jagged,
    "nested": lambda x: torch.nested.nested_tensor([x[:3], x[:5]]),
    **{str(dtype): lambda x, dtype=dtype: x.to(dtype) for dtype in FLOAT8},
}


@torch.compiler.disable
def apart(make, *given):
    """Call what Dynamo would not compile, or could not tell from what eager makes."""
    return make(*given)


def makes(kinds):
    """Makes an output of each kind from a linear layer."""

    def make(model, x):
        return apart(lambda out: [KINDS[kind](out) for kind in kinds], model.linear(x))

    return Does(make, linear=nn.Linear(32, 64))


SPECTRA = ["complex", "conjugated"]  # torch has no FFT in bfloat16


@pytest.mark.parametrize(("kinds", "dtype"), [(SPECTRA, "float32"), (sorted(KINDS.keys() - SPECTRA), "bfloat16")])
def test_right_outputs_of_unusual_kinds_pass(kinds, dtype):
    found = checked(makes(kinds), dtype=dtype)
    assert (found.status, found.failure) == (Status.PASS, None)
    assert "not_compared" not in found.details


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_output_of_each_unusual_kind_is_found(kind):
    right = torch.randn(64, 64)
    eager, *wrong = (snapshot(KINDS[kind](value)) for value in (right, 1.06 * right, right.roll(1, 0)))
    assert compare(eager, eager, eager, Tolerance(1e-3, 3.0)).problem is None
    assert all(compare(eager, made, eager, Tolerance(1e-3, 3.0)).problem for made in wrong)


def rotate(model, x):
    """Rotary embedding as Llama's reference has it."""
    pairs = torch.view_as_complex(x.float().reshape(64, 16, 2)) * model.angles * model.phase
    return torch.view_as_real(pairs).flatten(1)


@pytest.mark.parametrize(("dtype", "phase"), [("float32", Phase.INFERENCE), ("bfloat16", Phase.TRAINING)])
def test_complex_weights_stay_complex_in_every_dtype(dtype, phase):
    phase_shift = nn.Parameter(torch.polar(torch.ones(16), torch.rand(16)))
    model = Does(rotate, angles=torch.polar(torch.ones(64, 16), torch.rand(64, 16)), phase=phase_shift)
    found = checked(model, phase, dtype)
    assert (found.status, found.failure) == (Status.PASS, None)
    assert model.angles.dtype is model.phase.dtype is torch.complex64
    assert found.details["checked_by"] == "float64"


def test_a_sparse_gradient_is_compared():
    def look_up(model, index, factor=1.0):
        out = model.table(index)
        return out + (factor - 1) * (out - out.detach())  # only the gradient has the factor

    for factor, status in ((1.0, Status.PASS), (3.0, Status.FAIL_ACCURACY)):
        table = nn.Embedding(50, 8, sparse=True)
        model = Does(look_up, lambda model, index, factor=factor: look_up(model, index, factor), table=table)
        found = checked(model, Phase.TRAINING, inputs=torch.arange(40) % 30)
        assert found.status is status, found.failure


class Sealed:
    __slots__ = ()


def returns(extra, factor=1.0):
    def multiply(_, x, factor=1.0):
        return x * 3 * factor, apart(lambda: extra)

    return Does(multiply, lambda model, x: multiply(model, x, factor))


def test_values_that_are_no_tensors_are_compared_unless_they_are_unknown():
    values = [torch.float32, torch.device("cpu"), Status.PASS, {1, 2}, b"x", range(3), np.arange(3), np.float32(2), int]
    found = checked(returns(values))
    assert (found.status, found.failure) == (Status.PASS, None)
    found = checked(returns(Sealed()))
    assert found.status is Status.NOT_CHECKED and Status.NOT_CHECKED in NOT_APPLICABLE
    assert found.failure.message == "[1]: TypeError: no tensors are found in a Sealed"
    assert found.details["not_compared"] == {"[1]": "TypeError: no tensors are found in a Sealed"}
    assert "no fault of the model" in found.failure.hint
    # What can be compared beside it still fails.
    assert checked(returns(Sealed(), factor=1.5)).status is Status.FAIL_ACCURACY


def test_an_error_of_the_check_is_not_checked_one_of_the_device_stays(monkeypatch):
    def fail(*_):
        raise errors.pop()

    monkeypatch.setattr(checking, "compare", fail)
    errors = [NotImplementedError("no operator\nmore lines")]
    found = checked(returns(1))
    assert (found.status, found.failure.message) == (Status.NOT_CHECKED, "NotImplementedError: no operator")
    for error in (torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: an illegal")):
        errors.append(error)
        with pytest.raises(type(error), match=r"^CUDA"):
            checked(returns(1))


def test_a_large_sparse_tensor_is_compared_by_its_indices(monkeypatch):
    monkeypatch.setattr("collector.correctness.snapshot._DENSE", 3)
    x = torch.eye(4)
    assert parts_of(x.to_sparse())[".indices"].tolist() == [[0, 1, 2, 3]] * 2
    assert list(parts_of(x.to_sparse_csr())) == [".kind", ".crow_indices", ".col_indices", ""]
    assert not same_values(x.to_sparse(), x.roll(1, 0).to_sparse())


Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Boxed:
    tensor: torch.Tensor
    note: str = "kept"


class Plain:
    def __init__(self, tensor):
        self.tensor = tensor
        self.size = (640, 480)


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda t: t, "output"),
        (lambda t: (None, t), "[1]"),
        (lambda t: BaseModelOutput(last_hidden_state=t), "['last_hidden_state']"),
        (lambda t: Plain(t), ".tensor"),
        (lambda t: [{"boxes": Pair(Boxed(t), None)}], "[0]['boxes'].left.tensor"),
    ],
)
def test_a_clone_has_no_gradient_history_and_shows_no_later_write(wrap, path):
    source = torch.arange(4.0, requires_grad=True) * 1
    found = snapshot(wrap(source))[path]
    source.detach().fill_(-1)
    assert (found.tolist(), found.requires_grad) == ([0, 1, 2, 3], False)


@pytest.mark.timeout(20)
def test_a_structure_that_holds_itself_ends_in_an_error():
    twice, itself = {}, Plain(torch.ones(1))
    twice["a"], twice["b"], itself.tensor = twice, [twice, twice], itself
    for found in (twice, itself):
        with pytest.raises(UnknownOutputError, match="nested deeper"):
            snapshot(found)

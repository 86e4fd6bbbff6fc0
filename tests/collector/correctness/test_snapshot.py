"""Outputs of any structure are cloned at once, under paths that name them."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from collector.correctness.snapshot import Opaque, UnknownOutputError, snapshot

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Boxed:
    tensor: torch.Tensor
    note: str = "kept"


class Plain:
    def __init__(self, tensor):
        self.tensor = tensor
        self.size = (640, 480)


class Empty:
    __slots__ = ()


STRUCTURES = [
    (lambda t: t, "output"),
    (lambda t: {"logits": t}, "['logits']"),
    (lambda t: OrderedDict(a=t), "['a']"),
    (lambda t: [t], "[0]"),
    (lambda t: (None, t), "[1]"),
    (lambda t: Pair(1, t), ".right"),
    (lambda t: Boxed(t), ".tensor"),
    (lambda t: BaseModelOutput(last_hidden_state=t), "['last_hidden_state']"),
    (lambda t: Plain(t), ".tensor"),
    (lambda t: [{"boxes": Pair(Boxed(t), None)}], "[0]['boxes'].left.tensor"),
]


@pytest.mark.parametrize(("wrap", "path"), STRUCTURES)
def test_a_clone_has_no_gradient_history_and_shows_no_later_write(wrap, path):
    source = torch.arange(4.0, requires_grad=True) * 1
    found = snapshot(wrap(source))
    source.detach().fill_(-1)
    assert found[path].tolist() == [0, 1, 2, 3]
    assert found[path].requires_grad is False


def test_all_fields_of_a_structure_are_there_and_an_empty_one_has_none():
    assert sorted(snapshot(Plain(torch.ones(1)))) == [".size[0]", ".size[1]", ".tensor"]
    assert snapshot([{}, ()]) == {}
    assert snapshot([True, 2.5, 1j, {"x": None}]) == {"[0]": True, "[1]": 2.5, "[2]": 1j, "[3]['x']": None}


@pytest.mark.parametrize("value", [object(), Empty(), iter([1])])
def test_an_unknown_type_is_kept_by_its_name(value):
    assert snapshot({"logits": value}) == {"['logits']": Opaque(type(value).__qualname__)}


def _object_in_itself():
    found = Plain(torch.ones(1))
    found.tensor = found
    return found


def _twice_in_itself():
    found = {}
    found["a"], found["b"] = found, [found, found]
    return found


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [_object_in_itself, _twice_in_itself])
def test_a_structure_that_holds_itself_ends_in_an_error(make):
    with pytest.raises(UnknownOutputError, match="nested deeper"):
        snapshot(make())

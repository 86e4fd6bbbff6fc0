"""A name of torch that is missing is one line with the name and the version."""

import pytest
import torch

from collector.census.gpu_models import CensusError
from collector.census.private_names import find, find_first, replace


@pytest.mark.parametrize("path", ["torch:no_such_name", "torch.no_such_module:name", "torch:Tensor.no.such"])
def test_a_missing_name_is_one_line(path):
    with pytest.raises(CensusError) as caught:
        find(path)
    assert str(caught.value).startswith(f"torch {torch.__version__} has no {path.replace(':', '.')}")
    assert "\n" not in str(caught.value)


def test_a_missing_name_is_not_made(monkeypatch):
    with pytest.raises(CensusError):
        replace("torch:no_such_name", 1)
    assert not hasattr(torch, "no_such_name")


def test_the_first_known_name_counts():
    assert find_first("torch:no_such_name", "torch:Tensor") is torch.Tensor

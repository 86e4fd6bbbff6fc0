"""The one place where a census looks up names of torch and Triton and replaces them, so that a missing one is one clear line."""

from __future__ import annotations

import importlib
from typing import Any

from collector.census.gpu_models import CensusError

#: The releases of torch whose names this census knows.
RELEASES = "2.11 to 2.13"


def find(path: str) -> Any:
    """Return what `module:name` or `module:Class.name` names. Raises `CensusError` if this torch has no such name."""
    owner, name = _owner(path)
    try:
        return getattr(owner, name)
    except AttributeError:
        raise _missing(path) from None


def replace(path: str, value: Any) -> None:
    """Replace what `module:name` names. Raises `CensusError` if this torch has no such name."""
    owner, name = _owner(path)
    if not hasattr(owner, name):
        raise _missing(path)
    setattr(owner, name, value)


def find_first(*paths: str) -> Any:
    """Return what the first known path names: a name that differs from release to release. Raises `CensusError`."""
    for path in paths[:-1]:
        try:
            return find(path)
        except CensusError:
            continue
    return find(paths[-1])


def _owner(path: str) -> tuple[Any, str]:
    module_name, _, names = path.partition(":")
    *parents, name = names.split(".")
    try:
        owner: Any = importlib.import_module(module_name)
        for parent in parents:
            owner = getattr(owner, parent)
    except (ImportError, AttributeError):
        raise _missing(path) from None
    return owner, name


def _missing(path: str) -> CensusError:
    import torch

    return CensusError(
        f"torch {torch.__version__} has no {path.replace(':', '.')}, which the census needs: it knows torch {RELEASES}"
    )

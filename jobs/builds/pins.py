"""What an environment of another torch build gets besides torch: the same versions as here, so that only torch differs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distributions, requires, version

#: What measuring needs: the command line's libraries, and those of the models where they are installed here.
WANTED = ("click", "rich", "numpy", "transformers")
#: Packages that belong to one torch build.
_OF_TORCH = re.compile(r"(torch|triton|torchvision|torchaudio|inductor-watch)$|(nvidia|cuda)-|pytorch-triton")


def pins_here() -> list[str]:
    """`name==version` of what measuring needs, as far as it is installed here, and `setuptools`."""
    found = []
    for name in WANTED:
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    # Older builds import it to compile C++ and say so for Python 3.12 and later only; which version, each says itself.
    return [*found, "setuptools"]


def constraints_here() -> list[str]:
    """`name==version` of all that is installed here, but for torch and what torch itself asks for.

    Torch's own requirements are left to each build: some ask for a version that others refuse.
    """
    own = _of_torch()
    named = {_plain(dist.metadata["Name"]): dist.version for dist in distributions() if dist.metadata["Name"]}
    return [f"{name}=={number}" for name, number in sorted(named.items()) if _may_pin(name, number, own)]


def _may_pin(name: str, number: str, own: Iterable[str]) -> bool:
    # A local version, such as 0.28.0+cpu, is one that an index may not have.
    return "+" not in number and name not in own and not _OF_TORCH.match(name)


def _of_torch() -> set[str]:
    try:
        wanted = requires("torch") or []
    except PackageNotFoundError:
        wanted = []
    listed = (re.match(r"[A-Za-z0-9._-]+", text) for text in wanted)
    # As torch's own requirements are named where it is not installed here.
    known = {"filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"}
    return known | {_plain(found[0]) for found in listed if found}


def _plain(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()

"""Paths as they are told to others: from the package on, without the folders of the machine they came from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

#: Everything up to and with the folder that holds installed packages, the standard library, or this project.
_INSTALLED = re.compile(r"(?:/[^\s\"':,()]+?)?/(?:(?:lib/python3\.\d+/)?(?:site|dist)-packages|lib/python3\.\d+)/")
_PROJECT = re.compile(re.escape(str(Path(__file__).resolve().parents[1])) + "/")


def shorten(value: Any) -> Any:
    """The same text, or structure of texts, with host paths cut down to `torch/...` or `collector/...`."""
    if isinstance(value, str):
        return _PROJECT.sub("", _INSTALLED.sub("", value))
    if isinstance(value, dict):
        return {shorten(key): shorten(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shorten(item) for item in value]
    return value

"""Where another environment's Python finds this program: the environment has torch and the models, not us."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

#: What measuring imports, and what these name.
_ROOMS = ("collector", "jobs", "db", "analysis")


def code_path() -> dict[str, str]:
    """PYTHONPATH with this program in front of what it holds already."""
    rest = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(_code_folder()), *([rest] if rest else [])])}


@cache
def _code_folder() -> Path:
    """A folder that holds this program and no other package, above all no torch."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "torch").exists() and not root.name.endswith("-packages"):
        return root
    # Kept until this process ends: every process of a cell imports from it.
    global _copy
    _copy = tempfile.TemporaryDirectory(prefix="inductor-watch-")
    folder = Path(_copy.name)
    for room in _ROOMS:
        shutil.copytree(root / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    _name_version(folder)
    return folder


_copy: tempfile.TemporaryDirectory[str] | None = None


def _name_version(folder: Path) -> None:
    """Lets `importlib.metadata` find this program's version beside the copy."""
    from jobs.cli import tool_version

    info = folder / f"inductor_watch-{tool_version()}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: inductor-watch\nVersion: {tool_version()}\n")

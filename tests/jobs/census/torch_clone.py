"""A clone of PyTorch with a few files of the installed torch and commits on top, of which one changes code."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobs.builds.overlay import Wheel


def clone_with_changes(clone: Path) -> tuple[Path, str]:
    """Make it and return it with its base. Three commits follow: a comment, less fusion, a file that acts at run time."""
    wheel = Wheel.installed()

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(name: str, old: str, new: str, title: str) -> None:
        path = clone / "torch" / "_inductor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = path.read_text() if path.exists() else (wheel.folder / "torch" / "_inductor" / name).read_text()
        assert old in source
        path.write_text(source.replace(old, new, 1))
        git("add", "-A")
        git("-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-qm", title)

    clone.mkdir()
    git("init", "-q")
    for name in ("config.py", "fx_passes/micro_pipeline_tp.py", "runtime/hints.py"):
        commit(name, "", "", f"Add {name}")
    base = git("rev-parse", "HEAD")
    commit("config.py", "import", "# a comment\nimport", "Add a comment")
    commit("config.py", "max_fusion_size = 64", "max_fusion_size = 1", "Fuse less")
    commit("runtime/hints.py", "import functools", "import functools\nprint(end='')", "Act at run time")
    return clone, base

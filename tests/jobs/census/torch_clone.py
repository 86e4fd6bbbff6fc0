"""A clone of PyTorch with a few files of the installed torch and commits on top, of which one changes code."""

from __future__ import annotations

from pathlib import Path

from tests.jobs.repositories import commit, installed


def clone_with_changes(clone: Path) -> tuple[Path, str]:
    """Make it and return it with its base. Three commits follow: a comment, less fusion, a file that acts at run time."""
    names = [f"torch/_inductor/{name}.py" for name in ("config", "fx_passes/micro_pipeline_tp", "runtime/hints")]
    config, _, hints = names
    base = commit(clone, {name: installed(name).read_text() for name in names}, "main")
    for name, old, new, title in (
        (config, "import", "# a comment\nimport", "Add a comment"),
        (config, "max_fusion_size = 64", "max_fusion_size = 1", "Fuse less"),
        (hints, "import functools", "import functools\nprint(end='')", "Act at run time"),
    ):
        text = (clone / name).read_text()
        assert old in text
        commit(clone, {name: text.replace(old, new, 1)}, "main", title)
    return clone, base

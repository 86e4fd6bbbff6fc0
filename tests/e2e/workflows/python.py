"""The `python3` of a test's host: everything is installed already, and measuring may be played instead of done.

`bootstrap.py` is really run and finds its environment. With PLAYED=1 the verbs that measure write synthetic bundles
(tests/e2e/workflows/played.py). The command line runs in a process of the server that PROGRAM_SERVER names.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.program_server import ask

_ROOT = Path(__file__).resolve().parents[3]
_MEASURING = {"nightly", "run"}
#: A site is published without the scripts of its charts: to bundle them takes longer than all its pages.
_PRELUDE = "import vl_convert; vl_convert.javascript_bundle = lambda *_, **__: ''"


def _prepare(script: Path, words: list[str]) -> None:
    """Make the environment that `bootstrap.py` would make: a Python that imports this project."""
    folder = Path(next(word for word in words if not word.startswith("-")))
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={_ROOT} exec {sys.executable} -S {__file__} "$@"\n')
    python.chmod(0o755)
    changed = (script.resolve().parents[1] / "pyproject.toml").stat().st_mtime_ns
    stamp = f"{changed} {words} {os.environ.get('TORCH', '')}"
    (folder / ".inductor-watch-installed").write_text(stamp)


def main() -> None:
    words = sys.argv[1:]
    if words[0].endswith("bootstrap.py"):
        _prepare(Path(words[0]), words[1:])
    elif words[:2] == ["-m", "jobs.cli"]:
        is_played = words[2] in _MEASURING and os.environ.get("PLAYED")
        module = "tests.e2e.workflows.played" if is_played else "jobs.cli"
        streams = (0, 1, 2)
        sys.exit(ask(os.environ["PROGRAM_SERVER"], module, words[2:], str(Path.cwd()), os.environ, streams, _PRELUDE))
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 -- it becomes the Python that was asked for


if __name__ == "__main__":
    main()

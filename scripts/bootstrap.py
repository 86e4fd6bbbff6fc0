"""Make an environment in which inductor-watch can measure, with nothing but Python's standard library.

    python3 scripts/bootstrap.py FOLDER [--dev | --no-torch]

An environment that already has torch keeps it: inside a virtual environment with torch everything is installed there; if the
system's Python has torch, the new environment sees it. Else torch is installed: the package that TORCH names, by default torch's
own build (for CUDA) if nvidia-smi is found, and torch==2.13.0 on a host without a GPU (add TORCH_INDEX_URL, an index of CPU
wheels, if the package index's own build is for CUDA). With --no-torch, for a host that only stores and judges measurements of
other hosts, neither torch nor the models are installed. Only the Python to use is printed to standard output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_CPU_TORCH = "torch==2.13.0"


def main() -> int:
    """Create the environment that the command line names, or take the active one, and install into it; return the exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036 - any Python may run this script
        print(
            f"inductor-watch needs Python 3.11 or newer, this is {sys.version.split()[0]}:"
            " name another, e.g. make PYTHON=python3.12, or run this script with it",
            file=sys.stderr,
        )
        return 2
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    python = _environment(Path(words[0]).absolute())
    stamp = python.parent.parent / ".inductor-watch-installed"
    wanted = f"{(_ROOT / 'pyproject.toml').stat().st_mtime_ns} {sys.argv[1:]} {os.environ.get('TORCH', '')}"
    if not stamp.exists() or stamp.read_text() != wanted:
        if "--no-torch" in sys.argv:
            _pip(python, "-e", f"{_ROOT}[postgres]")
        else:
            _install(python, "dev" if "--dev" in sys.argv else None)
        stamp.write_text(wanted)
    print(python)
    return 0


def _environment(folder: Path) -> Path:
    in_environment = sys.prefix != sys.base_prefix
    if in_environment and _has_torch(Path(sys.executable)) and not (folder / "bin").exists():
        return Path(sys.executable)
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True, system_site_packages=not in_environment and _has_torch(Path(sys.executable)))
    return python


def _install(python: Path, extra: str | None) -> None:
    if not _has_torch(python) or os.environ.get("TORCH"):
        _pip(python, _torch(), *_index())
    extras = ",".join(name for name in ("zoo", extra) if name)
    _pip(python, "-e", f"{_ROOT}[{extras}]")


def _torch() -> str:
    return os.environ.get("TORCH") or ("torch" if shutil.which("nvidia-smi") else _CPU_TORCH)


def _index() -> list[str]:
    url = os.environ.get("TORCH_INDEX_URL")
    return ["--index-url", url] if url else []


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    print("installing " + " ".join(word for word in arguments if not word.startswith("-")), file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=sys.stderr)


def _has_torch(python: Path) -> bool:
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    return subprocess.run([str(python), "-c", probe], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())

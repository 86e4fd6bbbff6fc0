"""Wheels of packages called torch that compute nothing, for environments that are made without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

#: Before the interpreter runs `-m jobs.pool.child` the stand-in answers and ends it.
_STAND_IN = """
import os, sys
if "jobs.pool.child" in sys.orig_argv:
    from tests.jobs.builds.fake_worker import answer
    answer({speed!r}, {version!r}, {commit!r})
    sys.stdout.flush()
    os._exit(0)
"""


def commit_of(version: str) -> str:
    return version.replace(".", "").ljust(40, "0")


def make_wheel(
    folder: Path, version: str, speed: float = 1.0, *, imports: bool = True, needs: tuple[str, ...] = ()
) -> Path:
    """A wheel of synthetic torch `version`, which measures 10 ms times `speed` for every cell."""
    commit = commit_of(version)
    init = f"__version__ = {version!r}\nfrom torch import version\n"
    files = {
        "torch/__init__.py": init if imports else "raise ImportError('no libsynthetic')\n",
        "torch/version.py": f"git_version = {commit!r}\n",
        "synthetic_stand_in.py": _STAND_IN.format(speed=speed, version=version, commit=commit),
        # Not sitecustomize: some systems have one of their own, which comes first.
        "synthetic_stand_in.pth": "import synthetic_stand_in\n",
    }
    return _write_wheel(folder, "torch", version, files, needs)


def make_extra(folder: Path, name: str) -> Path:
    """A wheel of a package with one module, version 1.0."""
    return _write_wheel(folder, name, "1.0", {f"{name.replace('-', '_')}.py": "answer = 42\n"})


def _write_wheel(folder: Path, name: str, version: str, files: dict[str, str], needs: tuple[str, ...] = ()) -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    requires = "".join(f"Requires-Dist: {other}\n" for other in needs)
    files = {
        **files,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: synthetic\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{stem}.dist-info/RECORD"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, record: "".join(f"{listed},,\n" for listed in [*files, record])}.items():
            wheel.writestr(file, text)
    return path

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
    """The git commit of a synthetic build."""
    return version.replace(".", "").ljust(40, "0")


def make_wheel(
    folder: Path, version: str, speed: float | None = 1.0, *, imports: bool = True, needs: tuple[str, ...] = ()
) -> Path:
    """A wheel of synthetic torch `version`, which measures 10 ms times `speed` for every cell."""
    commit = commit_of(version)
    init = (
        f"__version__ = {version!r}\nfrom torch import version\n"
        if imports
        else "raise ImportError('no libsynthetic')\n"
    )
    info = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": init,
        "torch/version.py": f"git_version = {commit!r}\n",
        "synthetic_stand_in.py": _STAND_IN.format(speed=speed, version=version, commit=commit),
        # Not sitecustomize: some systems have one of their own, which comes first.
        "synthetic_stand_in.pth": "import synthetic_stand_in\n",
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                "Name: torch",
                f"Version: {version}",
                *(f"Requires-Dist: {name}" for name in needs),
                "",
            ]
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: synthetic\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return _write_wheel(folder / f"torch-{version}-py3-none-any.whl", info, files)


def make_extra(folder: Path, name: str) -> Path:
    """A wheel of a package with one module, version 1.0."""
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    files = {
        f"{module}.py": "answer = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: synthetic\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return _write_wheel(folder / f"{module}-1.0-py3-none-any.whl", info, files)


def _write_wheel(path: Path, info: str, files: dict[str, str]) -> Path:
    record = f"{info}/RECORD"
    listed = "".join(f"{name},,\n" for name in [*files, record])
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, record: listed}.items():
            wheel.writestr(name, text)
    return path

"""What every test runs in: an environment of the suite's own, and generated inputs that are the same every time.

No test sees the user's configuration of pip, uv or git, the locale, the time zone, HOME or variables of torch. It is set
before pytest looks for tests, and its workers and the programs that tests start inherit it.
`HYPOTHESIS_PROFILE=explore pytest` draws new inputs; what that finds becomes an `@example`.
"""

from __future__ import annotations

import atexit
import gc
import locale
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

#: What is kept of the user's variables: where programs, compilers and temporary files are, and what is said to the suite.
_KEPT = ("PATH", "LD_LIBRARY_PATH", "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES")
_KEPT += ("TMPDIR", "USER", "LOGNAME", "HOME")
_KEPT += ("HYPOTHESIS_PROFILE", "INDUCTOR_WATCH_SCREENSHOTS", "INDUCTOR_WATCH_CHAOS")
#: What PYTHONPATH was: pytest-xdist gives its workers the module path that pytest itself began with.
_LEFT_OUT = "PYTEST_LEFT_OUT_OF_PYTHONPATH"
_SET = {
    "PIP_CONFIG_FILE": os.devnull,  # the file of the whole machine is not read either
    "UV_NO_CONFIG": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "GOMP_SPINCOUNT": "0",  # threads of torch that wait for each other leave the cores to the other worker
    "TORCHINDUCTOR_VEC_ISA_OK": "1",  # probes of the CPU's instruction sets take seconds in each process
}


def _make_compiler(home: Path, path: str) -> str:
    """Makes a folder with a compiler that keeps what it has compiled; empty where there is none to keep it of."""
    compiler = shutil.which("g++", path=path)
    if compiler is None:
        return ""
    for name in ("compiler", "compiled"):
        (home / name).mkdir()
    script = home / "compiler" / "g++"
    program = Path(__file__).with_name("compiler_cache.py")
    words = [sys.executable, "-IS", str(program), compiler, str(home / "compiled")]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return str(script.parent)


def _clean() -> None:
    """Gives this process, and all that it starts, the suite's own environment."""
    left_out = os.environ.get(_LEFT_OUT, os.environ.get("PYTHONPATH", ""))
    for place in left_out.split(os.pathsep):
        while place and str(Path(place).absolute()) in sys.path and Path(place).resolve() != Path.cwd():
            sys.path.remove(str(Path(place).absolute()))
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("PYTEST_")}
    os.environ.clear()
    os.environ.update(kept | _SET | {_LEFT_OUT: left_out})
    # Hundreds of processes import the packages, and each would compile them where make says not to keep the bytecode.
    sys.dont_write_bytecode = False
    if "PYTEST_XDIST_WORKER" not in kept:  # a worker has the folder of the process that started it
        home = tempfile.mkdtemp(prefix="watch-home-")
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        # `python3` is the Python of the suite: another one may be a script that looks into the user's HOME.
        path = kept.get("PATH", os.defpath)
        programs = [str(Path(sys.executable).parent), _make_compiler(Path(home), path), path]
        os.environ.update(HOME=home, PATH=os.pathsep.join(filter(None, programs)))
    os.environ.update(XDG_CONFIG_HOME=f"{os.environ['HOME']}/config", XDG_CACHE_HOME=f"{os.environ['HOME']}/cache")
    # Each worker measures for itself: tests need no quiet machine.
    locks = Path(os.environ["HOME"], f"locks-{kept.get('PYTEST_XDIST_WORKER', 'main')}")
    locks.mkdir(exist_ok=True)
    os.environ["INDUCTOR_WATCH_LOCKS"] = str(locks)
    os.umask(0o022)
    # nohup ignores a hang-up, and a shell's background job an interrupt; whatever is started would inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    time.tzset()
    locale.setlocale(locale.LC_ALL, _SET["LC_ALL"])


_clean()
os.fsync = lambda _: None  # nothing here loses power, and half of the time of a small bundle is for the disk
gc.disable()  # until the tests are collected: imports make no garbage, and to look for it takes half of the time

# A host that only measures has torch, pytest and the standard library: the collector's tests run there.
if find_spec("sqlalchemy"):
    from tests.postgres import postgres, postgres_url

    __all__ = ["postgres", "postgres_url"]

if find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("repeatable", derandomize=True, deadline=None)  # a busy machine is slow
    settings.register_profile("explore")
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _environment() -> Generator[None]:
    """Undoes what a test leaves in the environment."""
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch sets it when something is compiled, in a shared fixture too
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def pytest_collection_finish() -> None:
    """From here on garbage is collected, but not looked for among what was imported."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Without pytest-timeout nothing is timed out, and pyproject.toml may say so all the same."""
    if not find_spec("pytest_timeout"):
        parser.addini("timeout", "of pytest-timeout, which is not installed")
        parser.addini("timeout_method", "of pytest-timeout, which is not installed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what `-m gpu` selects on a host without a GPU."""
    if item.get_closest_marker("gpu"):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("needs an NVIDIA GPU")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Tests that need a package which is not installed are skipped, with what to install; `.ci/run` has them all."""
    report = yield
    said = r"ModuleNotFoundError: (?:No module named '|import of )(\w+)"
    missing = re.search(said, str(report.longrepr)) if report.failed else None
    if missing and not find_spec(missing[1]):
        report.outcome = "skipped"
        reason = f"Skipped: {missing[1]} is not installed: pip install -e '.[dev,zoo]'"
        report.longrepr = (str(collector.path), 0, reason)
    return report

"""Whether cells may believe the CPU: a compiler is played, torch is real and in a process of its own."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.launcher import Launcher, Preload
from tests.collector.processes import ROOT, Script, wait_until, write_hook

pytestmark = pytest.mark.slow


def compiler(folder, code):
    """A C++ compiler that notes what it is asked and ends with this code, unless it is asked for its version."""
    folder.mkdir(exist_ok=True)
    place = folder / "played-compiler"
    place.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo played 1.0 && exit 0\necho "$@" >> "{folder}/asked"\nexit {code}\n'
    )
    place.chmod(0o755)
    return place


def environ_with(cxx, **more):
    environ = {name: value for name, value in os.environ.items() if name != SKIP_VARIABLE}
    return {**environ, "CXX": str(cxx), "PYTHONPATH": str(ROOT), **more}


def code_of(environ):
    return subprocess.run([sys.executable, "-m", "collector.machine.toolchain"], env=environ, check=False).returncode


def test_without_a_compiler_cells_probe_for_themselves_and_a_wish_stays(tmp_path):
    assert code_of(environ_with(tmp_path / "none")) == 1
    cxx = compiler(tmp_path, 0)
    assert code_of(environ_with(cxx, **{SKIP_VARIABLE: "0"})) == 1
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(("code", "told"), [(0, [True, "1", 1]), (1, [None, None, 1])])
def test_the_cells_of_a_server_are_told_and_need_no_probe(tmp_path, code, told):
    hook = write_hook(tmp_path / "hook")
    environ = environ_with(compiler(tmp_path, code), PYTHONPATH=f"{hook}:{ROOT}")
    asks = "import json, os, torch._inductor.config as config\n"
    asks += "from torch._inductor.cpu_vec_isa import valid_vec_isa_list as sets\n"
    asks += f"print(json.dumps([config.cpp.vec_isa_ok, os.environ.get({SKIP_VARIABLE!r}), sets.cache_info().currsize]))"
    with closing(Launcher(environ, Preload("cpu", ["preloaded"]))) as launcher:
        wait_until(lambda: launcher.is_ready, 200)
        with closing(Script(launcher, asks, hook)) as script:
            assert script.result() == told

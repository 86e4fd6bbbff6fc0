"""Whether cells may believe the CPU: a compiler is played, torch is real and in a process of its own."""

import os
from contextlib import closing

import pytest

from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.launcher import Launcher, Preload
from tests.collector.processes import ROOT, Script, wait_until, write_hook


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "wish", "told"), [(0, "", [True, "1", 1]), (1, "", [None, "", 1]), (0, "0", [False, "0", 1])]
)
def test_the_cells_of_a_server_are_told_and_need_no_probe(tmp_path, code, wish, told):
    hook, compiler = write_hook(tmp_path / "hook"), tmp_path / "played-compiler"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo played 1.0 && exit 0\nexit {code}\n')
    compiler.chmod(0o755)
    environ = {**os.environ, "CXX": str(compiler), "PYTHONPATH": f"{hook}:{ROOT}", SKIP_VARIABLE: wish}
    asks = "import json, os, torch._inductor.config as config\n"
    asks += "from torch._inductor.cpu_vec_isa import valid_vec_isa_list as sets\n"
    asks += f"print(json.dumps([config.cpp.vec_isa_ok, os.environ.get({SKIP_VARIABLE!r}), sets.cache_info().currsize]))"
    with closing(Launcher(environ, Preload("cpu", ["preloaded"]))) as launcher:
        wait_until(lambda: launcher.is_ready, 200)
        with closing(Script(launcher, asks, hook)) as script:
            assert script.result() == told

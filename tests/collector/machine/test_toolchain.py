"""What a server finds out about the processor before its first cell, in processes of their own."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.collector.processes import ROOT

_ASKS = """
from collector.machine.toolchain import know_instruction_sets
know_instruction_sets({0})
from torch._inductor.cpu_vec_isa import valid_vec_isa_list
print(*map(str, valid_vec_isa_list()), sep=";")
"""


@pytest.mark.slow
def test_probes_are_built_once_and_found_by_the_next_server(tmp_path):
    asked, compiler = tmp_path / "asked", tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> "{asked}"\nexec {shutil.which("g++")} "$@"\n')
    compiler.chmod(0o755)
    environ = {**os.environ, "CXX": str(compiler), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    told, built = [], []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _ASKS], env=environ, capture_output=True, text=True, check=True)
        told.append(done.stdout)
        built.append(sum(".cpp" in line for line in asked.read_text().splitlines()) if asked.exists() else 0)
    if not built[0]:
        pytest.skip("this torch needs no probe on this processor")
    assert built[1] == built[0]
    assert told[0] == told[1]
    (kept,) = (tmp_path / ".cache" / "inductor-watch" / "probes").iterdir()
    assert list(kept.rglob("*.so"))

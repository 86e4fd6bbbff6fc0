"""The table of options held against torch: against one that is synthetic and lies in a folder."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_options.py"
CONFIG = """
use_static_cuda_launcher: bool = True
autotune_fallback_to_aten = True
force_disable_caches: bool = Config(alias="torch.compiler.config.force_disable_caches")
class cuda:
    cutlass_presets: str | None = None
class triton:
    cudagraph_or_error: bool = False
"""


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs the script on a synthetic torch of this version, whose code is this; returns the exit code and its rows by key."""

    def run(version, code, config=CONFIG):
        folder = tmp_path / version
        (folder / "torch/_inductor").mkdir(parents=True)
        (folder / "torch/version.py").write_text(f"__version__ = '{version}'\n")
        (folder / "torch/_inductor/config.py").write_text(config)
        (folder / "torch/_inductor/code.py").write_text(code)
        monkeypatch.setattr(sys, "argv", ["check_options.py", "--source", str(folder), "--json"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        found = json.loads(capsys.readouterr().out)
        return ended.value.code, {key: said for key, said, _ in found["rows"]}

    return run


def test_rows_hold_or_are_wrong_by_what_torch_has_and_reads(check):
    reads = "if config.autotune_fallback_to_aten or inductor_cuda_config.cutlass_presets: pass"
    code, rows = check("2.8.0", reads)
    assert code == 1
    assert rows["use_static_cuda_launcher"] == "holds"
    assert rows["cuda.cutlass_presets"] == "holds"  # not yet stopped, and read
    assert rows["autotune_fallback_to_aten"] == "WRONG"  # stopped in 2.8, and this one reads it
    assert rows["triton.cudagraph_or_error"] == "WRONG"  # comes in 2.9
    assert rows["force_disable_caches"] == "-"  # another config's name is no option


def test_what_is_taken_and_not_read_has_stopped(check):
    _, rows = check("2.9.1", "if config.autotune_fallback_to_aten_not: pass")
    assert rows["autotune_fallback_to_aten"] == "holds"
    assert rows["force_disable_caches"] == "holds"
    assert rows["cuda.cutlass_presets"] == "WRONG"  # it stops in 2.10 only

"""A memory regression beside a slower cell, on the shipped nights: every answer of the command line has it."""

from __future__ import annotations

from tests.command_line import call
from tests.dashboard import stores


def test_memory_is_named_by_report_compare_and_gate(tmp_path):
    stores.shipped(tmp_path / "inductor-watch.db")
    done = call("report", "latest~1", "latest", "--format", "markdown", folder=tmp_path)
    (line,) = [line for line in done.stdout.splitlines() if "memory: 10 regressed" in line]
    assert "mobilevit_s +46.8 %" in line
    lines = call("compare", "latest~1", "latest", folder=tmp_path, COLUMNS="80").stdout.splitlines()
    assert any("memory: 10 regressed" in line for line in lines)
    assert any("735 MB  1.58 GB +115.5 % +114.8..+116.2" in line for line in lines)
    assert "regressed: 62 in 52 cells, the first 20 of them (--limit shows more)" in lines
    assert "not shown: 10 improved, 12 no clear change, 2 unchanged (--limit shows more)" in lines
    assert "  slower than eager: 4 cells of new (SDPA.causal_gqa 0.82x, T5Small 0.86x, dlrm 0.91x; 3 of base)" in lines
    done = call("gate", "latest~1", "latest", "--fail-on", "memory", folder=tmp_path)
    assert done.returncode == 1
    found = [line.rpartition("(")[2] for line in done.stdout.splitlines() if line.startswith("regressed: ")]
    assert found[:3] == ["peak memory +115.5 %)", "peak memory +110.3 %)", "peak memory +49.2 %)"]
    assert "gate: 10 regressed in memory" in done.stdout
    lines = call("gate", "latest~1", "latest", folder=tmp_path).stdout.splitlines()
    both = next(line for line in lines if line.startswith("regressed: timm/convnextv2_nano"))
    assert both.endswith("cudagraphs (peak memory +115.5 %, device time +36.7 %)")

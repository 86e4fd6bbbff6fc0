"""A memory regression beside a slower cell, on the shipped nights: every answer of the command line has it."""

from __future__ import annotations

import pytest

from tests.command_line import call
from tests.dashboard import stores


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("nights")
    stores.shipped(made / "inductor-watch.db")
    return made


def test_memory_is_named_and_compare_keeps_what_matters_in_80_columns(folder):
    done = call("report", "latest~1", "latest", "--format", "markdown", folder=folder)
    (line,) = [line for line in done.stdout.splitlines() if "memory: 10 regressed" in line]
    assert "mobilevit_s +46.8 %" in line
    done = call("compare", "latest~1", "latest", folder=folder, COLUMNS="80")
    assert "memory: 10 regressed" in done.stdout
    lines = done.stdout.splitlines()
    assert any(line.split() == ["cell", "by", "base", "new", "change", "95", "%"] for line in lines)
    assert any(line.endswith("pass rate     device speedup x") for line in lines)
    assert any("735 MB  1.58 GB +115.5 % +114.8..+116.2" in line for line in lines)
    assert "regressed: 62 in 52 cells, the first 20 of them (--limit shows more)" in lines
    assert "not shown: 10 improved, 12 no clear change, 2 unchanged (--limit shows more)" in lines
    (line,) = [line for line in lines if line.startswith("  slower than eager: ")]
    assert line == "  slower than eager: 4 cells of new (SDPA.causal_gqa 0.82x, T5Small 0.86x, dlrm 0.91x; 3 of base)"


def test_a_gate_may_fail_on_a_dimension_and_says_by_how_much(folder):
    done = call("gate", "latest~1", "latest", "--fail-on", "memory", folder=folder)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith("regressed: ")]
    assert [line.rpartition("(")[2] for line in lines[:3]] == [
        "peak memory +115.5 %)",
        "peak memory +110.3 %)",
        "peak memory +49.2 %)",
    ]
    assert "gate: 10 regressed in memory" in done.stdout
    lines = call("gate", "latest~1", "latest", folder=folder).stdout.splitlines()
    both = next(line for line in lines if line.startswith("regressed: timm/convnextv2_nano"))
    assert both.endswith("cudagraphs (peak memory +115.5 %, device time +36.7 %)")

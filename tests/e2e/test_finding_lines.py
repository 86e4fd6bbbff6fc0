"""A memory regression beside a slower cell, on the shipped nights: every answer of the command line has it."""

from __future__ import annotations

import pytest

from tests.command_line import ROOT, call, tell


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("nights")
    done = call("ingest", str(ROOT / "data" / "nights"), folder=made)
    assert done.returncode == 0, tell(done)
    return made


def test_compare_and_the_report_name_what_uses_more_memory(folder):
    for command in (["compare"], ["report", "--format", "markdown"]):
        done = call(*command[:1], "latest~1", "latest", *command[1:], folder=folder)
        (line,) = [line for line in done.stdout.splitlines() if "memory: 3 regressed" in line]
        assert "mobilevit_s +46.8 %" in line


def test_compare_keeps_what_matters_in_80_columns(folder):
    done = call("compare", "latest~1", "latest", folder=folder, COLUMNS="80")
    lines = done.stdout.splitlines()
    assert any(line.split() == ["cell", "by", "base", "new", "change", "95", "%"] for line in lines)
    assert any(line.endswith("pass rate     device speedup x") for line in lines)
    assert any("735 MB  1.58 GB +115.5 % +114.8..+116.2" in line for line in lines)
    assert "regressed: 46, the first 20 of them (--limit shows more); all are cuda cudagraphs" in lines
    assert "not shown: 5 improved, 4 no clear change, 18 unchanged (--limit shows more)" in lines
    assert any(line.startswith("  slower than eager: 5 cells of new (ViTForImage") for line in lines)


def test_a_gate_may_fail_on_a_dimension_and_says_by_how_much(folder):
    done = call("gate", "latest~1", "latest", "--fail-on", "memory", folder=folder)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith("regressed: ")]
    assert [line.rpartition("(")[2] for line in lines] == [
        "peak memory +115.5 %)",
        "peak memory +46.8 %)",
        "peak memory +12.8 %)",
    ]
    assert "gate: 3 regressed in memory" in done.stdout
    lines = call("gate", "latest~1", "latest", folder=folder).stdout.splitlines()
    worst = next(line for line in lines if line.startswith("regressed: "))
    assert worst.endswith("cudagraphs (peak memory +115.5 %, device time +27.8 %)")
    assert call("gate", "latest~1", "latest", "--fail-on", "compile", folder=folder).returncode == 0

"""What the bundles of several builds are said to differ by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.explain_builds import ALL, COLD, OWN, PHASES, main, read_builds, seconds
from tests.factories import cell, header, passing, write_bundle

PHASES_S = {"dynamo": 9.0, "aot_autograd": 7.0, "joint_graph_passes": 1.0, "inductor": 5.0, "code_gen": 4.0}


def measured(model, cold, own, total, **metrics):
    found = passing(cell(model), details={"compile_phases_s": PHASES_S, "compile_cpu_s": own, "cpu_s": total})
    return replace(
        found, metrics={**found.metrics, COLD: cold, "eager_ms": 2.0, "compiled_ms": 1.0, "speedup": 2.0, **metrics}
    )


def test_a_phase_is_told_without_those_within_it():
    found = seconds(measured("m", 10.0, 3.0, 8.0))
    assert [found[name] for name in PHASES] == [2.0, 1.0, 1.0, 1.0, 4.0]
    assert (found[COLD], found[OWN], found[ALL]) == (10.0, 3.0, 8.0)


def test_changes_are_told_from_build_to_build_with_what_changed_besides(tmp_path, monkeypatch, capsys):
    runs = {
        "2.9.1": measured("m", 10.0, 3.0, 8.0),
        "2.10.0": measured("m", 12.0, 3.0, 10.0, compiled_ms=1.5, eager_ms=2.8),
    }
    for number, (version, item) in enumerate(runs.items()):
        write_bundle(tmp_path, header(f"run{number}"), [item], environment={"torch": f"{version}+cu130"})
    assert list(read_builds(tmp_path)) == ["2.9.1", "2.10.0"]
    monkeypatch.setattr("sys.argv", ["explain_builds", str(tmp_path)])
    main()
    said = capsys.readouterr().out
    assert "2.9.1 -> 2.10.0 (one run of a build)" in said
    changes = [line.split() for line in said.splitlines() if line.startswith("  ")]
    assert [line[0] for line in changes] == ["compiled_ms", "compile_cold_s"]
    assert "+50%" in changes[0]
    assert changes[0][-2:] == ["eager", "+40%"]
    assert changes[1][-1] == "+25%"
    monkeypatch.setattr("sys.argv", ["explain_builds", str(tmp_path), "--least", "0.3"])
    main()
    assert "compile_cold_s m" not in capsys.readouterr().out


def test_without_bundles_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["explain_builds", str(tmp_path)])
    with pytest.raises(SystemExit, match="no bundle"):
        main()

"""The benchmark of histories runs on a small synthetic store and says what it found there."""

from __future__ import annotations

import re

from benchmarks import history


def test_a_small_store_is_filled_judged_and_scored(monkeypatch, capsys, tmp_path):
    words = ["history.py", "--cells", "48", "--nights", "40", "--db", str(tmp_path / "synthetic.db")]
    monkeypatch.setattr("sys.argv", words)
    history.main()
    said = capsys.readouterr().out
    assert re.search(r"one more night: alerts +\d+\.\d\d s, of which +\d+\.\d\d s on a core", said)
    assert "synthetic series (cell x metric) of 40 nights" in said
    # 120 points are all of it here: the window cannot differ.
    window, whole, alike = map(
        int, re.search(r"(\d+) changes by the window, (\d+) by the whole, (\d+) alike", said).groups()
    )
    assert window == whole == alike
    for metric in ("compile_cold_s", "compiled_peak_bytes"):  # no synthetic steps
        assert f"{metric}: 0 of 0 synthetic steps found; 0 of 0 ranges hold a step" in said

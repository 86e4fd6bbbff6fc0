"""The commands of the docs that make tables of the shipped measurements still make them."""

from __future__ import annotations

import shlex
import sys

import pytest

from benchmarks.__main__ import main
from tests.command_line import ROOT

SHIPPED = {
    "dynamic_sizes data/dynamic/*.xz": "| T5Small | inference | batch 2, length 512 | 12.404 | 4.234 | 4.709 | 1.112 |",
    "process_noise --fewest 2 data/templates/*-115*": "triton       compiled_ms beside eager            57    0.91%    9.37%",
    "beside_pytorch --table data/beside/h200": "| mobilenetv2_100 | triton | 8.04, 3.24 | 1.00 | 1.06 | 0.95 |",
    "borrowed_noise data/check_same/*": "    12    0.956     0.993  +-0.76%  +-0.80%",
    "played_check data/check/fusion": "8 processes, 4 cells timed, 6 s of one cell alone",
    "graphnet_samples table data/graphnet/*.xz": "| triton | pass | 167 |",
}


@pytest.mark.parametrize("words", [*SHIPPED, pytest.param("measured_power data/check_same/*", marks=pytest.mark.slow)])
def test_a_table_is_made_of_the_shipped_measurements(words, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    name, *rest = shlex.split(words)
    places = [str(path) for word in rest for path in (sorted(ROOT.glob(word)) if "*" in word else [word])]
    monkeypatch.setattr(sys, "argv", ["benchmarks", name, *places])
    try:
        assert main() == 0
    except SystemExit as ended:  # as Click ends a command
        assert ended.code == 0
    assert SHIPPED.get(words, "  10%    396        1.0000") in capsys.readouterr().out

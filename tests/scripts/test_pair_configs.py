"""Pairs of two configs, from bundles: what is paired, and what is said of it."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.pair_configs import saved
from tests.factories import CUDAGRAPHS, DEFAULT, cell, failing, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[2]


def call(*words):
    return subprocess.run(
        [sys.executable, "scripts/pair_configs.py", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def bundles(tmp_path):
    """Three runs: one model twice as fast under the second config, one that fails there, one measured under the first alone."""
    for number, scatter in enumerate((0.98, 1.0, 1.02)):
        fast = {"compiled_ms": 5.0 * scatter, "cudagraph_skips": 0.0}
        items = [
            passing(cell("quick", DEFAULT), metrics={"compiled_ms": 10.0, "cudagraph_skips": 2.0}),
            passing(cell("quick", CUDAGRAPHS), metrics=fast),
            passing(cell("broken", DEFAULT)),
            failing(cell("broken", CUDAGRAPHS)),
            passing(cell("alone", DEFAULT)),
        ]
        write_bundle(tmp_path, header(f"r{number}", minutes=number), items)
    return sorted(tmp_path.glob("*.gz"))


def test_each_model_has_its_pairs_with_interval_and_counters(bundles):
    done = call("default", "cudagraphs", *bundles)
    assert done.returncode == 0, done.stderr
    paragraphs = [part.splitlines() for part in done.stdout.replace("\n  ", "\n\t").split("\nhugg")]
    assert len(paragraphs) == 2
    broken, quick = paragraphs
    assert "broken" in broken[0] and "3 pairs" in broken[0]
    assert "pass -> " in broken[1] and broken[1].endswith("(3)") and "pass -> pass" not in broken[1]
    assert "compiled_ms: +50.0 % saved (+47.5 .. +52.4), 2.00x, of 3" in quick[2]
    assert "\tcudagraph_skips: 2 -> 0" in quick


def test_no_pair_is_one_line(bundles):
    done = call("default", "max_autotune", *bundles)
    assert (done.returncode, done.stderr.strip()) == (
        1,
        "none of 3 bundles measured one model under both configs: see `inductor-watch runs`",
    )


def test_the_interval_is_students_on_logarithms():
    text = saved([math.log(0.5 * scatter) for scatter in (0.9, 1.0, 1 / 0.9)])
    # t(.975, 2) = 4.303, standard error .10536 / sqrt(3).
    half = 4.303 * 0.10536 / math.sqrt(3)
    low, high = (100 * (1 - 0.5 * math.exp(sign * half)) for sign in (1, -1))
    assert text == f"+50.0 % saved ({low:+.1f} .. {high:+.1f}), 2.00x"

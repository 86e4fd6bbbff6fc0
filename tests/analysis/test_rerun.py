"""The command that measures a cell again has the options of the run that measured it."""

from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from analysis.rerun import STEPPED_BY, SWITCHES, as_check, repro_as
from collector.settings import OPTIMIZERS, BackendFlags
from db.nights import RunInfo
from tests.factories import cell

SHA = "da9bfb0c0e5be34461c44c34d450d4931a55bff4"
PLAIN = "inductor-watch run --suite huggingface --model bert --config default --phase inference --dtype bfloat16"
FLAGS = "tf32_matmul tf32_cudnn reduced_math_attention"


def run(commit=SHA, **testbed):
    return RunInfo(1, "r", "r", "main", commit, "pytorch/pytorch", "t", testbed, "", datetime.now(UTC))


@pytest.mark.parametrize(
    ("measured", "used", "words"),
    [
        (run(), {"torch": "2.11.0"}, ""),
        (run(flags=FLAGS, optimizer="none", tuning="own"), {}, ""),
        (run(tuning="shared"), {"source": "8 files"}, f" --source pytorch@{SHA} --shared-tuning tuning"),
        (run(commit="$(id)", optimizer="; id"), {"source": "8 files"}, ""),
        (run(flags="tf32_cudnn cudnn_benchmark"), {}, " --flag tf32_matmul=off --flag reduced_math_attention=off"),
        (run(optimizer="adam"), {}, " --optimizer adam"),
    ],
)
def test_the_options_of_the_run_stand_behind_those_of_the_cell(measured, used, words):
    command = repro_as(cell("bert"), measured, used)
    assert command.startswith(PLAIN)
    assert (words in command) if words else "--source" not in command and "--optimizer" not in command


def test_a_check_chooses_tuning_itself_and_options_are_the_collectors():
    assert (asdict(BackendFlags()), ("none", *STEPPED_BY)) == (SWITCHES, OPTIMIZERS)
    check = as_check(repro_as(cell("bert"), run(tuning="shared"), {"source": "8 files"}), "inductor-watch check a b")
    assert check == repro_as(cell("bert"), run(), {}).replace("inductor-watch run", "inductor-watch check a b")

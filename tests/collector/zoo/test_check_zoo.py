"""The script that tries the zoo out on a machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check_zoo.py"


def check(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_one_line_a_model_with_what_was_found():
    done = check("--suite", "torchbench", "speech_transformer", "vision_maskrcnn", "--calls", "1")
    assert done.returncode == 0, done.stderr
    found, skipped = map(json.loads, done.stdout.splitlines())
    assert found["model"] == "torchbench/speech_transformer"
    assert found["ok"]
    assert found["finite"]
    assert found["parameters"] == 46_471_168
    assert {"seconds", "build_s", "eager_ms", "peak_gb", "batch_size"} <= set(found)
    assert skipped["model"] == "torchbench/vision_maskrcnn"
    assert "torchvision" in skipped["skipped"] or "CPU" in skipped["skipped"]


def test_an_unknown_model_is_one_line_and_exit_code_2():
    done = check("resnet19")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no model matches resnet19: did you mean resnet18")


def test_a_model_that_fails_is_reported_and_exit_code_1():
    done = check("speech_transformer", "--device", "cuda:99", "--calls", "1")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]


@pytest.mark.slow
def test_an_isolated_model_is_compiled_in_a_process_of_its_own():
    done = check("ViTTinyForImageClassification", "--isolate", "--compile", "--training", "--batch-size", "2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["batch_size"] == 2
    assert found["compile_s"] > 0
    assert found["process_s"] > found["compile_s"]


@pytest.mark.slow
def test_an_isolated_model_is_stopped_at_its_limit():
    done = check("speech_transformer", "--isolate", "--limit-s", "0.5")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == "not done after 0.5 s"

"""A night on two nodes of a real Ray cluster of which one is killed: each planned cell ends once, and the store has them all."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Cell, Config, Phase, Status
from db.engine import open_store
from db.nights import list_nights
from db.queries.side_rows import side_rows
from db.queries.sides import resolve_side
from tests.collector.processes import wait_until
from tests.jobs.acting import CORES, played_host
from tests.jobs.pool.test_device_slots import TWO, play_driver

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray")
#: Whether this machine has a token for clusters of its own is not the tests' affair.
OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
CLUSTER = Path(__file__).with_name("ray_cluster.py")
FACTS = {"device": "cpu", "torch": "2.13.0", "torch_git": "d" * 40, "cpu": "synthetic", "start": "spawn"}
MODELS = ("BertForMaskedLM", "GPT2ForSequenceClassification", "T5Small")


@contextlib.contextmanager
def cluster(**common):
    """Two nodes with these variables, alpha and beta; yields the process and its address."""
    # The paths of sockets are short: not below pytest's own folder.
    folder = tempfile.mkdtemp(prefix="ray-")
    nodes = [
        json.dumps({"num_gpus": 2, "env_vars": {"INDUCTOR_WATCH_NODE": name, **facts_of(name)}})
        for name in ("alpha", "beta")
    ]
    (Path(folder) / "ray").mkdir()
    environ = {**os.environ, **OPEN, **common, "RAY_TMPDIR": folder}
    words = [sys.executable, str(CLUSTER), *nodes]
    process = subprocess.Popen(
        words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        address = process.stdout.readline().strip()
        assert ":" in address, "the cluster did not start"
        yield process, address
    finally:
        process.stdin.close()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def facts_of(name):
    return {"PLAY_ENVIRONMENT": json.dumps({**FACTS, "node": name})}


#: The machine that plans: its environment is asked for without a pool around it.
PLANNER = {**facts_of("planner"), "INDUCTOR_WATCH_WORKERS": "1"}


def start(address, folder, *words, **environ):
    command = [sys.executable, "-m", "jobs.cli", "nightly", "--executor", "ray", "--address", address, *map(str, words)]
    how = {"cwd": folder, "env": {**os.environ, **OPEN, **environ}, "start_new_session": True}
    with (folder / "said").open("w") as said, (folder / "errors").open("w") as errors:
        return subprocess.Popen(command, stdout=said, stderr=errors, **how)


def told(folder):
    return (folder / "said").read_text() + (folder / "errors").read_text()


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_cells_of_a_lost_node_are_measured_by_the_other_on_all_of_its_gpus(tmp_path):
    """The cells play: nothing imports torch, and the GPUs are those of a played driver."""
    (tmp_path / "bin").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        play_driver(tmp_path / "bin", patch, TWO)
        variables = played_host(tmp_path / "log") | {"PATH": os.environ["PATH"], "PLAY_SCRIPT": "work:0.4,measure:0.1"}
    cells = [
        Cell("huggingface", model, Phase.INFERENCE, "float32", "cuda", number, Config(backend="eager"))
        for number, model in enumerate(MODELS * 2, 1)
    ]
    (tmp_path / "plan.json").write_text(json.dumps({"cells": [cell.to_json() for cell in cells]}))
    words = ("--plan", "plan.json", "--start", "spawn", "--tasks", len(MODELS), "--out", "runs", "--db", "store.db")
    with cluster(**variables) as (nodes, address):
        process = start(address, tmp_path, *words, **{**variables, **PLANNER})
        wait_until(lambda: process.poll() is not None or "node beta measures" in told(tmp_path), 600)
        nodes.stdin.write("kill\n")
        nodes.stdin.flush()
        assert process.wait(600) == 0, told(tmp_path)
    runs = [read_bundle(path) for path in (tmp_path / "runs").glob("*.jsonl.gz")]
    ids = Counter(cell.cell_id for cell in cells)
    assert Counter(item.cell.cell_id for run in runs for item in run.measurements) == ids, told(tmp_path)
    assert Counter(cell.cell_id for run in runs for cell in run.planned) == ids
    assert "node beta was lost" in told(tmp_path)
    of_alpha = [run for run in runs if run.header.testbed["node"] == "alpha"]
    assert {run.header.testbed["gpu_index"] for run in of_alpha} == {0, 1}
    assert sum(len(run.measurements) for run in of_alpha) >= 4
    with open_store(tmp_path / "store.db", write=False).connect() as conn:
        (night,) = list_nights(conn)
        rows = side_rows(conn, resolve_side(conn, night.night))
    assert sorted(rows["cell_id"]) == sorted(ids)
    assert set(rows["status"]) == {Status.PASS}

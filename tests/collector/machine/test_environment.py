"""What is told of a machine: all that a number depends on, and nothing that only says where files lie."""

import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

from collector.machine.environment import (
    GPU_VARIABLE,
    GPUS_VARIABLE,
    START_VARIABLE,
    WORKERS_VARIABLE,
    extract_testbed,
    fingerprint,
)
from collector.machine.host import CORES_VARIABLE
from tests.collector.processes import ROOT

NODE = "a-node-of-tests"
#: Variables that change numbers, and others that only place files or name things of the host.
TOLD = {
    "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    "TORCHDYNAMO_VERBOSE": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
    "TRITON_INTERPRET": "0",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}
UNTOLD = {
    "TORCHINDUCTOR_CACHE_DIR": "/home/someone/cache",
    "TORCH_HOME": "/home/someone/torch",
    "CUDA_VISIBLE_DEVICES": "GPU-5e1d0cf9",
    "HOSTNAME": "secret-host",
    "PYTORCH_GITHUB_TOKEN": "hidden-words",
    "TORCH_INDEX_URL": "https://user:hidden-words@host/simple",
    "TORCHINDUCTOR_REDIS_URL": "redis://user:hidden-words@host",
    "PYTHONPATH": f"/home/someone/lib:{ROOT}",
}


def test_a_testbed_has_what_the_pool_told_and_what_changes_a_number(tmp_path):
    pool = {WORKERS_VARIABLE: "4", START_VARIABLE: "fork", GPU_VARIABLE: "3", GPUS_VARIABLE: "8"}
    cores = {CORES_VARIABLE: str(max(os.sched_getaffinity(0)))}
    someone = tmp_path / "someone"
    untold = {name: value.replace("/home/someone", str(someone)) for name, value in UNTOLD.items()}
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("INDUCTOR_", "TORCH", "OMP_"))}
    variables = {**clean, **pool, **cores, **TOLD, **untold, "INDUCTOR_WATCH_NODE": NODE}
    command = [sys.executable, "-m", "collector.machine.environment", "cpu"]
    found = json.loads(subprocess.check_output(command, env=variables, cwd=ROOT, text=True))
    testbed = extract_testbed(found)
    assert testbed.pop("cpu")
    pool = {"gpu_index": 3, "gpus": 8, "workers": 4, "start": "fork", "node": NODE}
    assert testbed == pool | {"device": "cpu", "cores": 1, "torch_threads": 1}
    assert {key: found.get(f"env.{key}") for key in TOLD} == TOLD
    text = json.dumps(found)
    for name in UNTOLD:
        assert f"env.{name}" not in found
    for word in ("someone", "5e1d0cf9", "secret-host", "hidden-words", str(Path.home()), str(ROOT), sys.prefix):
        assert word not in text
    for name in {platform.node(), socket.gethostname(), socket.getfqdn()} - {"", "localhost"}:
        assert name not in text
    assert not {"driver", "capability", "cuda", "gpu_memory_bytes"} & found.keys()


def test_without_a_pool_its_keys_are_missing_and_the_node_is_the_host(monkeypatch):
    for name in (WORKERS_VARIABLE, START_VARIABLE, GPU_VARIABLE, GPUS_VARIABLE, "INDUCTOR_WATCH_NODE"):
        monkeypatch.delenv(name, raising=False)
    found = fingerprint("cpu")
    assert not {"workers", "start", "gpu_index", "gpus", "gpu"} & found.keys()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert [key for key, value in found.items() if value == platform.node()] == ["node"]

"""The energy of a call from a counter that moves in steps: a pretended GPU, and a real one beside nvidia-smi."""

from __future__ import annotations

import subprocess
import time
from threading import Thread
from types import SimpleNamespace

import pytest

from collector.measure import energy
from collector.measure.energy import NoEnergyError, joules_of


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 300 W whose counter moves every `step` seconds, and a clock that its calls and its readings move."""
    found = SimpleNamespace(now=0.0, step=0.02, watts=lambda at: 300.0, joules=0.0, seen=0.0, moved=0.0, call_s=0.002)
    monkeypatch.setattr(energy.time, "perf_counter", lambda: found.now)

    def run(seconds):
        found.joules += found.watts(found.now) * seconds
        found.now += seconds
        if found.now - found.moved >= found.step:
            found.seen, found.moved = found.joules, found.now

    found.call = lambda: run(found.call_s)
    found.read = lambda: (run(0.0002), round(1e3 * found.seen))[1]
    found.measured = lambda: joules_of(found.call, lambda: None, found.read, found.call_s)
    return found


@pytest.mark.parametrize(("step", "call_s"), [(0.02, 0.002), (0.1, 0.002), (0.1, 0.0001), (0.02, 0.06), (0.1, 0.06)])
def test_the_energy_of_a_call_is_read_within_three_percent(gpu, step, call_s):
    gpu.step, gpu.call_s = step, call_s
    assert gpu.measured() == pytest.approx(300 * call_s, rel=0.03)
    assert gpu.now < 3.3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"call_s": 0.2}, "a call takes 0.20 s"),
        ({"step": 1.0}, "the counter moved . times"),
        ({"watts": lambda at: 300 + 100 * at}, "the first half of the calls"),
    ],
    ids=["long", "slow counter", "not steady"],
)
def test_what_cannot_be_read_so_well_is_absent_with_a_reason(gpu, changes, why):
    vars(gpu).update(changes)
    with pytest.raises(NoEnergyError, match=why):
        gpu.measured()


@pytest.mark.gpu
def test_on_a_gpu_the_energy_is_that_of_the_power_that_nvidia_smi_reads():
    import torch

    from collector.device import device_named
    from collector.machine.host import Watcher

    device = device_named("cuda")
    uuid = device.uuid()
    read = Watcher(uuid).energy_mj
    assert read is not None
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def call():
        for _ in range(10):
            torch.mm(x, x)

    end = time.perf_counter() + 2
    while time.perf_counter() < end:  # until power and clocks stand
        call()
        device.synchronize()
    begin = time.perf_counter()
    for _ in range(50):
        call()
        device.synchronize()
    call_s = (time.perf_counter() - begin) / 50
    watts, done = [], []
    command = ["nvidia-smi", f"--id={uuid}", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]

    def watch():
        while not done:
            watts.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]))

    beside = Thread(target=watch)
    beside.start()
    try:
        joules = [joules_of(call, device.synchronize, read, call_s) for _ in range(3)]
    finally:
        done.append(True)
        beside.join()
    power = sorted(watts[1:])[len(watts[1:]) // 2]
    assert joules[0] / call_s == pytest.approx(power, rel=0.15), (joules, call_s, watts)
    assert max(joules) == pytest.approx(min(joules), rel=0.06), joules

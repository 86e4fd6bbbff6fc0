"""The energy of a call from a counter that moves in steps: made-up readings, a counter of the clock, and a real GPU."""

import subprocess
import time
from threading import Thread

import pytest

from collector.measure.energy import EnergyReading, NoEnergyError, joules_of, joules_per_call


def readings(*, step=0.02, call_s=0.002, interval=0.02, watts=lambda at: 300.0, seconds=1.2):
    """Readings of a GPU whose counter moves every `step` seconds, in whole calls and one each `interval`."""
    made, joules, seen, moved, at, calls, read_at = [], 0.0, 0.0, 0.0, 0.0, 0, -1.0
    while at < seconds:
        joules, at, calls = joules + watts(at) * call_s, at + call_s, calls + 1
        if at - moved >= step:
            seen, moved = joules, at
        if at - read_at >= interval:
            made.append(EnergyReading(at, calls, round(1e3 * seen)))
            read_at = at
    return made


def test_readings_take_no_time_from_the_calls():
    """A counter of 300 W that moves every 20 ms and takes 15 ms to read, as NVML's may."""

    def read():
        time.sleep(0.015)
        return round(300e3 * 0.02 * (time.perf_counter() // 0.02))

    made, begin = [], time.perf_counter()
    found = joules_of(lambda: (made.append(1), time.sleep(0.002)), lambda: None, read, 0.002)
    took = time.perf_counter() - begin
    assert took > 0.8
    # Where a reading kept calls waiting, a call would take several times as long.
    assert found == pytest.approx(300 * took / len(made), rel=0.1)
    assert took / len(made) < 0.01


def test_energy_is_read_within_three_percent_or_it_is_said_why_not():
    for step, call_s, interval in [(0.02, 0.02, 0.02), (0.1, 0.002, 0.01)]:
        found = joules_per_call(readings(step=step, call_s=call_s, interval=interval))
        assert found == pytest.approx(300 * call_s, rel=0.03)
    for changes, why in [
        ({"interval": 0.1, "step": 0.1}, "read every 0.1.. s"),
        ({"step": 1.0}, "the counter moved . times"),
        ({"watts": lambda at: 300 + 100 * at}, "the first half of the calls"),
        ({"seconds": 0.0}, "was not read in time"),
    ]:
        with pytest.raises(NoEnergyError, match=why):
            joules_per_call(readings(**changes))
    with pytest.raises(NoEnergyError, match=r"a call takes 0\.20 s"):
        joules_of(lambda: None, lambda: None, lambda: 0, 0.2)

    def fail():
        raise OSError("not supported")

    with pytest.raises(NoEnergyError, match="cannot be read: not supported"):
        joules_of(lambda: time.sleep(0.002), lambda: None, fail, 0.002)


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
    assert joules[0] / call_s == pytest.approx(power, rel=0.1), (joules, call_s, watts)
    assert max(joules) == pytest.approx(min(joules), rel=0.06), joules

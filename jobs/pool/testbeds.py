"""Where a run measures: each place with the environment that a cell there sees."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from collector.bundle import BundleContents
from collector.machine.environment import extract_testbed
from collector.process.launcher import Launcher, Preload
from collector.vocabulary import Cell, Config
from jobs.plan.planning import check_config
from jobs.plan.schedule import Group, group_of
from jobs.pool.device_slots import choose_gpus, list_gpus, make_places
from jobs.pool.gpu_scheduler import Place
from jobs.pool.host import probe
from jobs.pool.preloading import preload_for
from jobs.pool.resuming import Unfinished, check_place
from jobs.pool.runner import Pace


@dataclass(frozen=True, slots=True)
class Testbed:
    """A place, the fingerprint of its environment, the pace there, and the fork server that was started for it, if any."""

    __test__ = False  # the field's word, no test class

    place: Place
    environment: dict[str, Any]
    pace: Pace
    launcher: Launcher | None = field(default=None, compare=False)

    def import_for(self, cells: Iterable[Cell]) -> None:
        """Has the fork server import what these cells need."""
        if self.launcher:
            self.launcher.import_also(preload_for(cells, str(self.environment["device"])))


def find_testbeds(device: str | None, pace: Pace, serve: bool = False) -> list[Testbed]:
    """The testbeds of this machine that a pace asks for: one a GPU, or the CPU.

    Where there are several, the pace of each names them all: each has a part of the host's cores, and a run that is
    resumed without its companions must get that part again. With `serve` a run follows: what takes long for it, the
    imports of the fork servers and of the plan, goes on while the environments are probed.

    Raises:
        HostError: torch is not installed, or the device asked for is not there.
        PlaceError: a GPU that is not there, or more workers than cores.
    """
    gpus = choose_gpus([] if device == "cpu" else list_gpus(), None if device == "cpu" else pace.gpus)
    places = make_places(gpus, pace.workers, pace.start, pace.exclusive)
    launchers: list[Launcher | None] = [None] * len(places)
    with ThreadPoolExecutor(len(places) + 1) as threads, ExitStack() as until_found:
        if serve:
            expected = device or ("cuda" if gpus else "cpu")
            threads.submit(check_config, Config(), expected)  # imports torch, as every plan does
            if pace.start == "fork":
                launchers = [until_found.enter_context(closing(_server_for(place, expected))) for place in places]
        environments = list(threads.map(partial(probe, device), places))
        until_found.pop_all()
    named = replace(pace, gpus=",".join(str(gpu.index) for gpu in gpus)) if len(gpus) > 1 else pace
    found = zip(places, environments, launchers, strict=True)
    return [Testbed(place, environment, named, launcher) for place, environment, launcher in found]


def _server_for(place: Place, device: str) -> Launcher:
    return Launcher({**os.environ, **place.variables}, Preload(device), place.cores[0])


def testbeds_of(found: Sequence[Unfinished], paces: Sequence[Pace], serve: bool = False) -> list[Testbed]:
    """The testbed of each unfinished run of a night, in the same order.

    Raises:
        ResumeError: this machine or its torch is not the one that a run began on.
        HostError, PlaceError: as `find_testbeds`.
    """
    names = [name for pace in paces for name in (pace.gpus or "").split(",") if name]
    device = found[0].contents.header.testbed.get("device")
    here = find_testbeds(device, replace(paces[0], gpus=",".join(dict.fromkeys(names)) or None), serve)
    chosen = [_testbed_for(run, here) for run in found]
    for run, testbed in zip(found, chosen, strict=True):
        check_place(run, testbed.environment)
    return chosen


def _testbed_for(run: Unfinished, here: Sequence[Testbed]) -> Testbed:
    index = run.contents.header.testbed.get("gpu_index")
    # Without its own it gets any, and is refused with both named.
    return next((testbed for testbed in here if testbed.environment.get("gpu_index") == index), here[0])


def last_lanes(history: Iterable[BundleContents], testbeds: Sequence[Testbed]) -> dict[Group, int]:
    """On which of the testbeds each group of cells was measured last; `history` begins with the newest run.

    A series stays on one GPU that way: two of a kind differ by a few tenths of a percent.
    """
    lanes = {extract_testbed(testbed.environment).get("gpu_index"): lane for lane, testbed in enumerate(testbeds)}
    found: dict[Group, int] = {}
    for run in history:
        lane = lanes.get(run.header.testbed.get("gpu_index"))
        if lane is not None and run.header.testbed.get("node") == testbeds[lane].environment.get("node"):
            for measurement in run.measurements:
                found.setdefault(group_of(measurement.cell), lane)
    return found


def device_of(testbeds: Sequence[Testbed]) -> str:
    """The device that all of them have."""
    return str(testbeds[0].environment["device"])

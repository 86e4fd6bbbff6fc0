"""The testbeds of this machine, where a run measures: each device slot with the environment that its cells see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from collector.bundle import BundleContents
from collector.device import CPU, GPU, is_accelerator
from collector.machine.environment import SOURCE_VARIABLE, extract_testbed
from collector.machine.host import spell_cores
from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.launcher import Launcher, Preload
from collector.usage_errors import ConfigError, ExpectedError, ZooError
from collector.vocabulary import Cell, Config
from collector.zoo.registry import find, select
from collector.zoo.spec import ModelSpec
from jobs.plan.planning import check_config
from jobs.plan.shards import Group, last_places
from jobs.pool.device_slots import choose_gpus, list_gpus, make_slots
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.resuming import Unfinished, check_testbed
from jobs.requested_options import ExecutionOptions, Selection

#: The places on a slot's cores where the probes and the fork servers of both sides of a check import at the same time.
_PLACES = 4


class HostError(ExpectedError):
    """An error for a host where torch cannot be used; its text says why and what to do."""


def probe(device: str | None, slot: DeviceSlot | None = None) -> dict[str, Any]:
    """Return the environment's fingerprint as a cell in a slot sees it; without a device, that of the GPU, else of the CPU.

    Raises:
        HostError: torch is not installed, or the device asked for is not there.
    """
    command = [sys.executable, "-m", "collector.machine.environment", *([device] if device else [])]
    environ = os.environ | ({**slot.variables, **spell_cores(slot.cores[0])} if slot else {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode < 0:  # by a signal: for lack of memory, or from a user
        ended = signal.Signals(-done.returncode).name
        raise HostError(f"torch does not start here: {ended} ended the process that looks for it; try again")
    if done.returncode != 0:
        raise HostError(_reason(done.stderr, device))
    environment: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return environment


@cache
def cell_variables(start: str) -> dict[str, str]:
    """Return environment variables for the cells of a run on this machine; forked cells get them from their server.

    They matter on a GPU as well: a graph with one scalar on the CPU has a C++ kernel.
    """
    if start == "fork" or SKIP_VARIABLE in os.environ:
        return {}
    done = subprocess.run([sys.executable, "-m", "collector.machine.toolchain"], capture_output=True, check=False)
    return {SKIP_VARIABLE: "1"} if done.returncode == 0 else {}


def _reason(stderr: str, device: str | None) -> str:
    last = stderr.strip().splitlines()[-1] if stderr.strip() else "no output"
    if "No module named 'torch'" in last:
        return "torch is not installed in this environment: pip install torch, or run `make setup` in a checkout"
    if device and is_accelerator(device):
        return f"no usable GPU here ({last}): use --device cpu, or see `inductor-watch doctor`"
    return f"torch does not start here: {last}"


@dataclass(frozen=True, slots=True)
class Testbed:
    """A device slot, the fingerprint of its environment, the options there, and the fork server started for it, if any."""

    __test__ = False  # the field's word, no test class

    slot: DeviceSlot
    environment: dict[str, Any]
    execution: ExecutionOptions
    launcher: Launcher | None = field(default=None, compare=False)

    @property
    def device(self) -> str:
        """The name of the device in `collector.device`."""
        return str(self.environment["device"])

    def serving(self, side: int, cells: Sequence[Cell]) -> Testbed:
        """Return the testbed with a fork server that begins to import what these cells need, or as it is if it does not fork.

        The server imports on the cores of one worker, as many cores as its cells will have.
        """
        if self.launcher or self.execution.start != "fork":
            self.import_for(cells)
            return self
        variables, cores = {**os.environ, **self.slot.variables}, _cores_apart(self.slot, 2 * side + 1)
        return replace(self, launcher=Launcher(variables, preload_for(cells, self.device), cores))

    def import_for(self, cells: Iterable[Cell]) -> None:
        """Make the fork server import what these cells need."""
        if self.launcher:
            self.launcher.import_also(preload_for(cells, self.device))


@contextmanager
def keeping_servers(testbeds: Iterable[Testbed]) -> Iterator[None]:
    """Keep the fork servers of testbeds for several runs, since imports take them 20 s, and end them with the context."""
    launchers = [testbed.launcher for testbed in testbeds if testbed.launcher]
    for launcher in launchers:
        launcher.is_kept = True
    try:
        yield
    finally:
        for launcher in launchers:
            launcher.is_kept = False
            launcher.close()


def preload_for(cells: Iterable[Cell], device: str) -> Preload:
    """Return the imports of a fork server for a plan: its models' libraries and the code that builds them, in a fixed order.

    Graphs for a GPU hardly have C++ code if no wrapper is C++. A cell that has some all the same, and is among the first ones,
    probes the CPU's instruction sets itself.
    """
    specs: dict[ModelSpec, None] = {}
    cells = list(cells)
    for suite, model in dict.fromkeys((cell.suite, cell.model) for cell in cells):
        with suppress(ZooError):  # an unknown model fails in its own cell
            specs[find(suite, model)] = None
    configs = {cell.config.name for cell in cells}
    has_cpp = device == CPU or any("cpp" in name or "backend=" in name for name in configs)
    return preload_of_models(specs, device, has_cpp)


def preload_of_models(specs: Iterable[ModelSpec], device: str, has_cpp: bool) -> Preload:
    """Return the imports of a fork server for these models."""
    specs = list(specs)
    needs = sorted({name for spec in specs for name in spec.needs})
    builders = sorted({spec.builder.partition(":")[0] for spec in specs})
    # transformers loads a model's module when its class is first used, torchvision its models with the package.
    architectures = sorted({str(spec.params["architecture"]) for spec in specs if "architecture" in spec.params})
    classes = tuple(f"transformers:{name}" for name in architectures)
    return Preload(device, (*needs, *builders), classes, has_cpp)


def likely_models(selection: Selection, default: Sequence[str]) -> tuple[ModelSpec, ...]:
    """Return the models of a run on a GPU, as far as they are known before torch is imported; none without a GPU.

    `default` names the models of the zoo that a run has if the selection names none.
    """
    is_named = bool(selection.suites or selection.models)
    is_known = is_named or not (selection.everything or selection.models_file)
    if not is_known or selection.device not in (None, GPU) or not list_gpus():
        return ()
    with suppress(ZooError):  # the plan reports it
        return select(in_suites=selection.suites, patterns=selection.models if is_named else default)
    return ()


class StartedTestbeds:
    """The device slots of a run whose fork servers import already, if they are to `serve`; `probed` returns their testbeds.

    Probes and servers of each `side` (0 or 1) have cores of their own; servers import what `models` need at first, and
    with `has_cpp` they know the CPU's instruction sets before they are ready. Close it if it is not probed.

    Raises:
        ConfigError: a GPU that is not there, more workers than cores, or an overlay of torch that is gone.
    """

    def __init__(
        self,
        device: str | None,
        execution: ExecutionOptions,
        serve: bool = False,
        side: int = 0,
        models: Sequence[ModelSpec] = (),
        has_cpp: bool = True,
    ) -> None:
        has_slots = device in (None, GPU)
        self._gpus = choose_gpus(list_gpus() if has_slots else [], execution.gpus if has_slots else None)
        self._device, self._execution, self._serves, self._side = device, execution, serve, side
        self._expected = device or (GPU if self._gpus else CPU)
        self._slots = make_slots(self._gpus, execution.workers, execution.start)
        if execution.overlay:
            variables = _overlay_variables(execution)
            self._slots = [replace(slot, variables={**slot.variables, **variables}) for slot in self._slots]
        self._launchers = list[Launcher]()
        if serve and execution.start == "fork":
            preload = preload_of_models(models, self._expected, has_cpp)
            for slot in self._slots:
                variables = {**os.environ, **slot.variables}
                self._launchers.append(Launcher(variables, preload, _cores_apart(slot, 2 * side + 1)))

    def probed(self, plans: bool = True) -> list[Testbed]:
        """Probe the environments and return the testbeds. If several, the options of each name all GPUs.

        Each testbed has a part of the host's cores, and a run that is resumed alone must get that part again. If this process
        `plans` a run, it imports torch meanwhile, from the overlay if there is one: it can import only one of several overlays.

        Raises:
            HostError: torch is not installed, or the device is not there.
        """
        execution, slots = replace(self._execution, workers=len(self._slots[0].cores)), self._slots
        if plans and execution.overlay and execution.overlay not in sys.path:
            sys.path.insert(0, execution.overlay)
        with ThreadPoolExecutor(len(slots) + 1) as threads:
            if self._serves and plans:
                threads.submit(check_config, Config(), self._expected)  # imports torch, as every plan does
            seen = [replace(slot, cores=[_cores_apart(slot, 2 * self._side)]) for slot in slots]
            try:
                environments = list(threads.map(partial(probe, self._device), seen))
            except HostError as error:
                if not execution.overlay:
                    raise
                overlays = Path(execution.overlay).parent
                hint = f"if the installed torch was incomplete before, remove {overlays}, which links to its files"
                raise HostError(f"{error}; {hint}") from error
        if len(self._gpus) > 1:
            execution = replace(execution, gpus=",".join(str(gpu.index) for gpu in self._gpus))
        launchers: list[Launcher | None] = [*self._launchers] if self._launchers else [None] * len(slots)
        return [Testbed(*item) for item in zip(slots, environments, [execution] * len(slots), launchers, strict=True)]

    def close(self) -> None:
        """End the fork servers."""
        for launcher in self._launchers:
            launcher.close()


def find_testbeds(
    device: str | None,
    execution: ExecutionOptions,
    serve: bool = False,
    plans: bool = True,
    models: Sequence[ModelSpec] = (),
) -> list[Testbed]:
    """Return the testbeds of this machine that the options ask for: one for each GPU, or the CPU.

    `serve` announces a run (`StartedTestbeds`). Raises what that and its `probed` raise.
    """
    started = StartedTestbeds(device, execution, serve, models=models)
    try:
        return started.probed(plans)
    except BaseException:
        started.close()
        raise


def _cores_apart(slot: DeviceSlot, place: int) -> Sequence[int]:
    """Return the cores of the worker at one of four places that are far apart, as far as there are workers.

    Two processes import at the same time on one core, or on two threads of a core, in up to twice the time.
    """
    return slot.cores[place * len(slot.cores) // _PLACES]


def _overlay_variables(execution: ExecutionOptions) -> dict[str, str]:
    """Return variables with which new processes import torch from the overlay. Raises `ConfigError` if it cannot be used."""
    folder = execution.overlay
    if not Path(folder, "torch").is_dir():
        raise ConfigError(f"{folder} is gone, from which torch was imported: `run --source` makes it again")
    # The bundle of another user may name any folder: torch is imported only from folders that this user made.
    if Path(folder).stat().st_uid != os.geteuid():
        raise ConfigError(f"{folder} belongs to another user: make it yourself with `run --source`")
    rest = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([folder, *([rest] if rest else [])]), SOURCE_VARIABLE: execution.source}


def testbeds_of(unfinished: Sequence[Unfinished], serve: bool = False) -> list[Testbed]:
    """Return the testbed of each unfinished run of a night, in the same order.

    Raises `ConfigError` if this machine or its torch is not the one that a run began on, and what `find_testbeds` raises.
    """
    options = [run.requested.execution for run in unfinished]
    indexes = [index for execution in options for index in (execution.gpus or "").split(",") if index]
    device = unfinished[0].contents.header.testbed.get("device")
    here = find_testbeds(device, replace(options[0], gpus=",".join(dict.fromkeys(indexes)) or None), serve)
    chosen = [_testbed_for(run, here) for run in unfinished]
    for run, testbed in zip(unfinished, chosen, strict=True):
        check_testbed(run, testbed.environment)
    return chosen


def _testbed_for(run: Unfinished, here: Sequence[Testbed]) -> Testbed:
    index = run.contents.header.testbed.get("gpu_index")
    # A run whose GPU is missing gets another testbed; `check_testbed` then refuses it and names both.
    return next((testbed for testbed in here if testbed.environment.get("gpu_index") == index), here[0])


def last_testbeds(history: Iterable[BundleContents], testbeds: Sequence[Testbed]) -> dict[Group, int]:
    """Return, by group of cells, the index of the testbed that measured it last: GPUs of a kind differ by tenths of a percent."""
    known = [extract_testbed(testbed.environment) for testbed in testbeds]
    numbers = {(item.get("node"), item.get("gpu_index")): number for number, item in enumerate(known)}
    return last_places(history, lambda testbed: numbers.get((testbed.get("node"), testbed.get("gpu_index"))))

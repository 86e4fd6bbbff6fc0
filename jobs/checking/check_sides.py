"""The two sides of a check: their testbeds, their cells, and their code by the census.

The census generates the code of both sides in parallel, starting with the cells that it answers soonest, and answers for a
cell as soon as both sides have its code. Code that an earlier census generated from the same files is not generated again, so
the base of another check costs nothing.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from collector.bundle import CHECK, BundleWriter
from collector.census.gpu_models import CensusError, device_word
from collector.configs import parse_config
from collector.device import CPU, GPU, is_accelerator
from collector.machine.environment import environment_id
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.usage_errors import ConfigError
from collector.vocabulary import Cell, Config, OptionValue, Phase
from collector.zoo.spec import ModelSpec
from jobs.builds.build_options import SourceOptions
from jobs.builds.overlay import Wheel
from jobs.census.census_pool import Answers, CensusCache, CensusPlace, CensusPool
from jobs.census.census_runs import CensusCell, CensusMemory, census_header, share
from jobs.plan.planning import (
    CPU_TAG,
    CPU_TRAINING_TAG,
    Plan,
    check_config,
    joined,
    planned_night,
    planned_own,
    selected,
)
from jobs.plan.spared_cells import copy_for
from jobs.pool.device_slots import choose_gpus, list_gpus, make_slots
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.runner import make_header, new_run_id, now, record
from jobs.pool.testbeds import StartedTestbeds, Testbed, keeping_servers
from jobs.requested_options import ExecutionOptions, RequestedOptions, RunNames, Selection


@dataclass(frozen=True, slots=True)
class CheckedSide:
    """One side of a check: `word` is `base` or `new`, and `ref` is empty for the installed torch.

    All runs of a side form one night, whose name identifies the side, so that both sides may be of one commit.
    """

    word: str
    ref: str
    names: RunNames
    testbeds: Sequence[Testbed]

    @property
    def night(self) -> str:
        """The name of this side for `compare` and `report`."""
        return self.names.night


def make_overlays(
    refs: tuple[str, str], repo: Path, source: SourceOptions, label: str, requested: RequestedOptions
) -> list[tuple[RunNames, RequestedOptions]]:
    """Make the overlays of both refs, and return the names and the requested options of each ref's runs.

    An empty ref is the installed torch. Raises what `make_overlay` raises.
    """
    began = new_run_id()
    return [
        replace(source, source=f"{repo}@{ref}" if ref else None).applied(
            RunNames(trigger=CHECK, label=label, night=f"{began}-{word}"), requested
        )
        for word, ref in zip(("base", "new"), refs, strict=True)
    ]


@contextmanager
def found_sides(
    refs: tuple[str, str],
    overlays: Sequence[tuple[RunNames, RequestedOptions]],
    device: str | None,
    serve: bool,
    models: Sequence[ModelSpec] = (),
) -> Iterator[tuple[CheckedSide, CheckedSide]]:
    """Find the testbeds of both sides at the same time: each imports torch in a process of its own.

    This process plans with the base's torch. With `serve` the fork servers start before that and import what the first ones of
    these `models` need; they end with the context. Raises what `StartedTestbeds` and its `probed` raise.
    """
    words, begun = ("base", "new"), list[StartedTestbeds]()
    with ExitStack() as stack:
        for number, (_, requested) in enumerate(overlays):
            begun.append(
                StartedTestbeds(device, requested.execution, serve, number, first_models(models), has_cpp=False)
            )
            stack.callback(begun[-1].close)
        with ThreadPoolExecutor(len(words)) as threads:
            found = list(threads.map(StartedTestbeds.probed, begun, (True, False)))
        base, new = (
            CheckedSide(word, ref, names, testbeds)
            for word, ref, (names, _), testbeds in zip(words, refs, overlays, found, strict=True)
        )
        yield base, new


@contextmanager
def serving(sides: Iterable[tuple[CheckedSide, Sequence[Cell]]]) -> Iterator[list[CheckedSide]]:
    """Give each testbed of the sides a fork server that imports what the side's cells need, and end the servers afterwards."""
    with ExitStack() as stack:
        served = []
        for number, (side, cells) in enumerate(sides):  # each on cores of its own, as far as there are
            testbeds = [testbed.serving(number, cells) for testbed in side.testbeds]
            stack.enter_context(keeping_servers(testbeds))
            served.append(replace(side, testbeds=testbeds))
        yield served


#: The default models on a GPU, one of each kind, the most important first. Each compiles in 5 to 20 seconds for inference and in
#: 10 to 60 for training. Qwen3, speech_transformer and yolov3 take longer, so they are left out or not trained.
DEFAULT_MODELS = (
    "huggingface/Qwen3ForCausalLM",  # rotary positions, grouped heads, SwiGLU: what is trained today
    "huggingface/BertForMaskedLM",  # encoder: attention, layer norm, GELU
    "huggingface/T5Small",  # encoder and decoder, relative positions, RMS norm
    "huggingface/ConvNextForImageClassification",  # depthwise convolutions, layer norm over channels
    "timm/mobilenetv2_100",  # many small kernels
    "huggingface/DistillGPT2",  # decoder: causal attention
    "torchvision/resnet18",  # convolutions and batch norm
    "timm/deit_tiny_patch16_224.fb_in1k",  # attention on patches
    "huggingface/PLBartForCausalLM",  # a decoder with learned positions
    "timm/beit_base_patch16_224",  # relative positions as a table
    "torchvision/squeezenet1_1",  # concatenation
    "timm/visformer_small",  # convolutions and attention in one
)
#: The default model that is not trained: its 28 layers take 80 seconds to compile for training.
_NOT_TRAINED = "huggingface/Qwen3ForCausalLM"
#: The default configs of inference: plain code generation, without and with cudagraphs. With cudagraphs the latency is that of
#: the kernels, without the noise of launches, and a change that loses a cudagraph shows. Configs with autotuning are left out:
#: they take minutes, and their results change with the kernel templates only.
INFERENCE = (Config(template="triton"), Config(template="cudagraphs"))
#: A training step adds the partitioner and the backward's kernels, most of them reductions, which inference never compiles.
TRAINING = (Config(template="triton"),)
#: The default configs of inference on a CPU, which has no cudagraphs; freezing adds constant folding and packed weights.
CPU_INFERENCE = (Config(template="triton"), Config(template="freezing"))


def planned_check(device: str, selection: Selection, configs: tuple[str, ...]) -> Plan:
    """Return the plan of a check, its most important cells first.

    It has the cells that the options select, else those of the user's own models, else of the default models. The whole zoo
    is measured under the night's configs. Raises what `selected` and `divide` raise.
    """
    asked = tuple(map(parse_config, configs))
    if selection.everything:
        return planned_night(device, selection, configs)
    inference = INFERENCE if is_accelerator(device) else CPU_INFERENCE
    own, rest = planned_own(device, selection, asked, {Phase.INFERENCE: inference, Phase.TRAINING: TRAINING})
    return joined(own, _of_zoo(device, rest, asked)) if rest else own


def _of_zoo(device: str, selection: Selection, asked: Sequence[Config]) -> Plan:
    """Return the plan of the selected zoo models, phase by phase; of the default models if no model or suite is named."""
    on_gpu, is_default = is_accelerator(device), not (selection.suites or selection.models)
    inference = INFERENCE if on_gpu else CPU_INFERENCE
    plans = []
    for phase in map(Phase, selection.phases or ((Phase.INFERENCE,) if asked else Phase)):
        is_training = phase is Phase.TRAINING
        chosen, tags = replace(selection, phases=(phase.value,)), list[str]()
        if is_default and on_gpu:
            left_out = (_NOT_TRAINED,) if is_training else ()
            chosen = replace(chosen, models=tuple(name for name in DEFAULT_MODELS if name not in left_out))
        elif is_default:
            tags = [CPU_TRAINING_TAG if is_training else CPU_TAG]
        plans.append(selected(device, chosen, asked or (TRAINING if is_training else inference), *tags))
    plan = joined(*plans)
    if not (is_default and on_gpu):
        return plan
    # Training comes last: its check takes long. A model's two inference configs do not tune at the same time.
    order = {name: number for number, name in enumerate(DEFAULT_MODELS)}

    def rank(cell: Cell) -> tuple[bool, bool, int]:
        return cell.phase is Phase.TRAINING, cell.config == inference[-1], order[f"{cell.suite}/{cell.model}"]

    return replace(plan, cells=sorted(plan.cells, key=rank))


#: Names of options that may act without a trace in the generated code: how kernels are built, tuned, loaded and launched.
_ACTING = re.compile(
    r"cudagraph|autotune|tuning|compile_threads|worker|cache|debug|trace|profile|memory|stream|align|quiesce|deterministic|"
    r"^(triton|cpp|cuda|cutlass|rocm|halide|aot_inductor)\."
)
#: Options that match `_ACTING` although their effect shows in the generated code.
_IN_CODE = ("triton.multi_kernel", "triton.persistent_reductions", "triton.prefer_nd_tiling", "triton.max_tiles")


@dataclass(frozen=True, slots=True)
class OtherOption:
    """The options that `--against` gives the new side: Inductor's by name, and `freezing`, None to keep base's."""

    text: str
    overrides: Mapping[str, OptionValue] = field(default_factory=dict)
    freezing: bool | None = None

    @classmethod
    def parse(cls, text: str) -> OtherOption:
        """Return the options of `+key=value+key=value`. Raises `ConfigError` for any other text."""
        if not text.startswith("+"):
            raise ConfigError(f"--against {text}: write options as +NAME=VALUE, e.g. +combo_kernels=true")
        config = parse_config(f"default{text}")
        if replace(config, overrides={}, freezing=None) != Config() or config == Config():
            raise ConfigError(f"--against {text}: name options of Inductor alone, e.g. +combo_kernels=true")
        return cls(text, config.overrides, config.freezing)

    @property
    def acting(self) -> list[str]:
        """The options that may act at run time although the generated code is the same."""
        return [f"option {name}" for name in self.overrides if _ACTING.search(name) and name not in _IN_CODE]

    def config(self, config: Config) -> Config:
        """Return `config` with these options."""
        freezing = config.freezing if self.freezing is None else self.freezing
        return replace(config, overrides={**config.overrides, **self.overrides}, freezing=freezing)

    def cells(self, cells: Sequence[Cell]) -> dict[str, Cell]:
        """Return the cell of new for each of these cells of base, by the `cell_id` of base's cell.

        Raises `ConfigError` if torch does not know an option, or if one of base's configs has these options already.
        """
        found = {cell.cell_id: replace(cell, config=self.config(cell.config)) for cell in cells}
        for config in {cell.config.config_id: cell.config for cell in found.values()}.values():
            check_config(config, next(iter(found.values())).device)
        if any(cell.cell_id in found for cell in found.values()):
            raise ConfigError(f"--against {self.text}: base has these options already in one of its configs")
        return found


@dataclass(frozen=True, slots=True)
class CodeAnswer:
    """The answer of the census for one cell: its outcome on base and its outcome on new."""

    cell: Cell
    base: Outcome
    new: Outcome

    @property
    def is_same(self) -> bool | None:
        """Return whether both sides get the same code; None if the code of a side is not known."""
        sides = [CensusCell(outcome.measurement) for outcome in (self.base, self.new)]
        return sides[0].code_id == sides[1].code_id if all(one.is_known for one in sides) else None

    @property
    def reason(self) -> str:
        """The reason why the code of a side is not known; empty if both codes are known."""
        sides = [CensusCell(outcome.measurement) for outcome in (self.base, self.new)]
        return next((one.reason or one.measurement.status for one in sides if not one.is_known), "")

    def taken_now(self) -> CodeAnswer:
        """Return the answer dated now, so that it takes precedence over every earlier measurement."""
        moment = now()
        base, new = (
            replace(one, measurement=replace(one.measurement, started_at=moment)) for one in (self.base, self.new)
        )
        return CodeAnswer(self.cell, base, new)


def census_place(
    device: str, gpu: str | None, slot: DeviceSlot, execution: ExecutionOptions, cache: Path, threads: int = 1
) -> CensusPlace:
    """Return the place where a side's code for a device is generated. Raises `CensusError` if the census does not know the GPU.

    `threads` is the number of threads of a cell: C++ code is written for that number, a GPU's code is not.
    """
    word = device_word(device, gpu)
    if not word:
        raise CensusError(f"the census does not know {gpu}")
    place = CensusPlace(word, execution.overlay, execution.source, cache, threads=threads if word == CPU else 1)
    cores = sorted(os.sched_getaffinity(0) - set(slot.quiet_cores))
    return replace(place, workers=len(cores), cores=cores)


def started_census(
    device: str | None, overlays: Sequence[tuple[RunNames, RequestedOptions]], cache: Path
) -> list[CensusPool]:
    """Start the census of both sides before their testbeds are found: the name of the GPU is enough for that.

    The census processes import torch while other processes import it, too. Return an empty list if there is no GPU that the
    census knows: beside a check on a CPU there are too few cores.
    """
    gpus = list_gpus() if device in (None, GPU) else []
    pools = []
    with suppress(CensusError):  # reported when the census is asked for code
        for _, requested in overlays:
            execution = requested.execution
            for gpu in choose_gpus(gpus, execution.gpus)[:1]:
                (slot, *_) = make_slots([gpu], execution.workers, execution.start)
                pool = CensusPool(census_place(GPU, gpu.name, slot, execution, cache), requested.settings)
                pool.give_way()  # measuring needs the fork servers, but never the whole census
                pool.start()
                pools.append(pool)
    return pools


class CodeCensus:
    """The census of both sides of a check, with the answers that it learned from GPU nights.

    `is_alike`: the files of both sides are equivalent, so code generated for one side is found for the other. `on_new` has
    new's cells by the `cell_id` of base's cells where they have other configs. `started` are pools whose processes run already.
    """

    def __init__(
        self,
        places: tuple[CensusPlace, CensusPlace],
        settings: Settings,
        is_alike: bool = False,
        on_new: Mapping[str, Cell] = MappingProxyType({}),
        started: Sequence[CensusPool] = (),
    ) -> None:
        self._places, self._settings, self._on_new = places, settings, on_new
        self._started = list(started)
        self._is_alike = is_alike and CensusCache(places[1], settings).is_used
        self._memory = CensusMemory.read(places[0], Wheel.installed().version)
        self._pools: list[CensusPool] = []
        self._stands = self._gives_way = False

    def stand(self) -> None:
        """Pause the census: a cell needs the machine for itself."""
        if not self._stands:
            self._stands = True
            for pool in self._pools:
                pool.stand()

    def go_on(self) -> None:
        """Resume the census after `stand`."""
        if self._stands:
            self._stands = False
            for pool in self._pools:
                pool.go_on()

    def leave(self, cores: int, most: int | None = None) -> None:
        """Leave this number of cores to the measured cells by generating fewer cells side by side, at `most` so many on a side.

        From the first time that cells are measured, the census yields to them on shared cores. Both sides go on with at least
        one cell.
        """
        left = sum(place.workers for place in self._places) // 2 - cores
        for pool in self._pools:
            workers = left // max(1, len(self._pools))
            pool.workers = max(1, workers if most is None else min(workers, most))
            if cores and not self._gives_way:
                pool.give_way()
        self._gives_way = self._gives_way or bool(cores and self._pools)

    def ask(self, cells: Sequence[Cell], until: float = float("inf")) -> Generator[CodeAnswer | None]:
        """Yield the answer for each cell as it comes, cached answers first, until a time of `time.monotonic`.

        Yields None while no answer has come. Cells that are answered soonest are asked for first. A cell whose code differed
        from a GPU's is not asked for. Raises `CensusError` if no census can be taken.
        """
        differing = self._memory.differing
        cells = sorted(cells, key=soonest)
        pairs = [(cell, self._on_new.get(cell.cell_id, cell)) for cell in cells]
        waiting = [pair for pair in pairs if not any(one.cell_id in differing for one in pair)]
        leaders: list[list[Cell]] = []
        leader_of: list[dict[str, str]] = []
        for side in (0, 1):
            groups = share([pair[side] for pair in waiting])
            leaders.append([group[0] for group in groups])
            leader_of.append({cell.cell_id: group[0].cell_id for group in groups for cell in group})
        known: tuple[dict[str, Outcome], dict[str, Outcome]] = ({}, {})
        with ExitStack() as stack:
            for found in self._outcomes(leaders, until, stack):
                if found is None:
                    yield None
                    continue
                side, outcome = found
                known[side][outcome.measurement.cell.cell_id] = outcome
                for pair in list(waiting):
                    base, new = (known[at].get(leader_of[at][pair[at].cell_id]) for at in (0, 1))
                    if base and new:
                        waiting.remove(pair)
                        yield CodeAnswer(pair[0], _named(base, pair[0]), _named(new, pair[1]))

    def _outcomes(
        self, leaders: Sequence[Sequence[Cell]], until: float, stack: ExitStack
    ) -> Iterator[tuple[int, Outcome] | None]:
        """Yield the number of a side and an outcome, None while none has come; `stack` ends the processes of both sides."""
        answers = self._memory.answers
        missing: list[list[Cell]] = []
        for side, (place, cells) in enumerate(zip(self._places, leaders, strict=True)):
            kept = CensusCache(place, self._settings).find(cells, answers)
            yield from ((side, outcome) for outcome in kept)
            there = {outcome.measurement.cell.cell_id for outcome in kept}
            missing.append([cell for cell in cells if cell.cell_id not in there])
        if self._is_alike and len(missing[1]) >= len(missing[0]):
            missing[1] = [cell for cell in missing[1] if cell not in missing[0]]
        busy = sum(map(bool, missing))
        done: queue.SimpleQueue[tuple[int, Outcome | Exception]] = queue.SimpleQueue()
        for side, (place, rest) in enumerate(zip(self._places, missing, strict=True)):
            if rest:
                here = replace(place, workers=max(1, place.workers // busy))
                started = self._started_at(place)
                pool = started.take_over(self._settings, here.workers) if started else CensusPool(here, self._settings)
                stack.enter_context(pool)
                self._pools.append(pool)
                threading.Thread(target=_generate, args=(side, pool, rest, answers, done.put), daemon=True).start()
        for pool_without_cells in self._started:
            pool_without_cells.close()
        left = sum(map(len, missing))
        while left and time.monotonic() < until:
            try:
                side, outcome = done.get_nowait()
            except queue.Empty:
                yield None
                continue
            if isinstance(outcome, Exception):
                raise outcome
            left -= 1
            yield side, outcome
            if self._is_alike and side == 0:
                cell = outcome.measurement.cell
                yield from ((1, same) for same in CensusCache(self._places[1], self._settings).find([cell], answers))

    def _started_at(self, place: CensusPlace) -> CensusPool | None:
        """Remove the started pool of a place from the list and return it; None if there is none."""
        found = next((pool for pool in self._started if pool.place == place), None)
        if found:
            self._started.remove(found)
        return found


class SideRecord:
    """A bundle of one side, which plans the given cells: with the outcomes of a census, or with one turn of each cell.

    The bundle is created at the first outcome.
    """

    def __init__(
        self, side: CheckedSide, cells: Sequence[Cell], settings: Settings, folder: Path, is_census: bool
    ) -> None:
        self._side, self._cells, self._folder, self._is_census = side, cells, folder, is_census
        self._requested = RequestedOptions(settings, side.testbeds[0].execution)
        self._writer: BundleWriter | None = None

    @property
    def path(self) -> Path | None:
        """The path of the open bundle; None before the first outcome and after `close`."""
        return self._writer.path if self._writer else None

    def add(self, outcome: Outcome) -> None:
        """Record one outcome."""
        if self._writer is None:
            environment = self._side.testbeds[0].environment
            if self._is_census:
                header = census_header(outcome.environment, self._side.names, self._requested)
            else:
                header = make_header(environment, self._side.names, self._requested)
            self._writer = BundleWriter(self._folder, header, self._cells)
            if not self._is_census:
                self._writer.environment(environment_id(environment), environment)
        record(self._writer, outcome)

    def close(self) -> Path | None:
        """Close the bundle and return its path; None if nothing was recorded."""
        writer, self._writer = self._writer, None
        return writer.close(now()) if writer else None


def _generate(
    side: int,
    pool: CensusPool,
    cells: Sequence[Cell],
    answers: Mapping[str, Answers],
    put: Callable[[tuple[int, Outcome | Exception]], None],
) -> None:
    try:
        for outcome in pool.generate(cells, answers):
            put((side, outcome))
    except Exception as error:
        put((side, error))


#: Suites in the order in which their libraries are imported soonest; all other suites come last.
_SOONEST = ("user", "torchvision", "timm")


def soonest(cell: Cell) -> tuple[bool, bool, int]:
    """Return a sort key that puts cells first which a census answers soonest; cells with equal keys keep their order."""
    is_last = cell.config == INFERENCE[-1]  # the first config of the model comes before it
    return cell.phase is Phase.TRAINING, is_last, _place(cell.suite)


def first_models(models: Iterable[ModelSpec]) -> tuple[ModelSpec, ...]:
    """Return those models whose libraries are imported soonest: their cells begin before the other libraries are imported."""
    models = tuple(models)
    first = min((_place(model.suite) for model in models), default=0)
    return tuple(model for model in models if _place(model.suite) == first)


def _place(suite: str) -> int:
    """Return the place of a suite in the order in which libraries are imported."""
    return _SOONEST.index(suite) if suite in _SOONEST else len(_SOONEST)


def _named(outcome: Outcome, cell: Cell) -> Outcome:
    """Return an outcome as that of `cell`, a cell with the same program."""
    if cell == outcome.measurement.cell:
        return outcome
    return replace(outcome, measurement=copy_for(cell, outcome.measurement))

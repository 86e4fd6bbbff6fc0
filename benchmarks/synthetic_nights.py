"""Synthetic nights: invented results of runs of 150 models under 12 configs. None of them is a measurement.

The word `synthetic` is visible everywhere: it is the branch, and labels, titles of commits, names of models and of the device
begin with it. The values have the form of real ones from an H200: a level for every cell, half a percent of noise, steps at some
commits, failures with their texts, and a few cells that were planned and not measured. `open_filled` opens a store full of them.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, insert, select

from collector.bundle import BundleWriter, RunHeader
from collector.metrics import METRICS
from collector.vocabulary import Cell, Config, Failure, Measurement, Phase, Stage, Status, short_hash
from db.engine import open_store
from db.ingest import ingest_bundle
from db.schema import Commit, Run

WORD = "synthetic"
REPO = "synthetic/repository"
SUITES = ("huggingface", "timm", "torchvision")
CONFIGS = (
    *(Config(template=name) for name in (None, "cudagraphs", "triton", "aten", "cpp_wrapper", "cutlass")),
    *(Config(freezing=True), Config(dynamic=True), Config(mode="reduce-overhead"), Config(mode="max-autotune")),
    *(Config(template="cudagraphs", overrides={"graph_partition": value}) for value in (False, True)),
)
TESTBED = {"device": "cuda", "gpu": "synthetic GPU", "gpu_index": 0, "driver": "1.0", "cores": 2, "workers": 8}

_FIRST = datetime(2025, 1, 1, 2, tzinfo=UTC).timestamp()
_DAY_S, _CELL_S, _ROUNDS = 86_400, 8.0, 30
_EVERY = 100  # nights between two changes of what torch makes of a config
_PASS, _ACCURACY, _COMPILE, _MEMORY, _CRASH = range(5)
#: Status and failure by kind of failure, with texts as long as real ones.
_FAILURES = {
    _ACCURACY: (
        Status.FAIL_ACCURACY,
        Failure(Stage.CORRECTNESS, "fail_accuracy", "['logits']: RMSE 4.1 times eager's"),
    ),
    _COMPILE: (
        Status.FAIL_TO_COMPILE,
        Failure(
            Stage.COMPILE,
            "InductorError",
            "synthetic failure: the generated kernel does not compile\n" + "ptxas: too many resources requested\n" * 9,
            "compile with TORCHINDUCTOR_MAX_AUTOTUNE=0",
        ),
    ),
    _MEMORY: (Status.OOM, Failure(Stage.TIMING, "OutOfMemoryError", "synthetic failure: tried to allocate 2.00 GiB")),
    _CRASH: (Status.CRASHED, Failure(Stage.PROFILE, "SIGSEGV", "synthetic failure: the process died of signal 11")),
}
_ENDED = {_PASS: (Status.PASS, None), **_FAILURES}
#: The metrics that a cell has before each kind of failure; a pass has all metrics.
_BY_THEN = {
    _COMPILE: ("eager_peak_bytes",),
    _ACCURACY: (
        *("eager_peak_bytes", "compiled_peak_bytes", "compile_cold_s", "compression", "graphs", "graph_breaks"),
        *("recompiles", "kernels_generated", "kernels_extern", "error_rmse_ratio", "cosine"),
    ),
    _MEMORY: ("eager_peak_bytes", "graphs", "graph_breaks", "error_rmse_ratio", "cosine"),
    _CRASH: ("eager_peak_bytes", "graphs", "graph_breaks", "eager_ms", "compiled_ms", "speedup"),
}
_GIB = 2.0**30

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a synthetic store, with one night for each commit. The newest `sampled` nights have samples and evidence."""

    commits: int = 600
    models: int = 150
    configs: int = len(CONFIGS)
    sampled: int = 2


@dataclass(frozen=True, slots=True)
class Night:
    """A night by columns: entry i of each column belongs to `planned[i]`. `metrics` is NaN where there is no value."""

    number: int
    header: RunHeader
    planned: tuple[Cell, ...]
    is_measured: NDArray[np.bool_]
    ended: NDArray[np.int64]
    started_at: Values
    wall_s: Values
    metrics: dict[str, Values]
    programs: tuple[str, ...]
    environment_id: str

    @property
    def finished_at(self) -> float:
        """The time at which the last cell ended, in seconds since 1970."""
        return float(self.started_at[-1]) + _CELL_S

    def measurements(self, *, samples: bool) -> Iterator[Measurement]:
        """Yield the measurements in the order of the plan, with or without raw samples and evidence."""
        random = np.random.default_rng([self.number, 1])
        for place in np.flatnonzero(self.is_measured).tolist():
            status, failure = _ENDED[int(self.ended[place])]
            metrics = {
                name: float(found[place]) for name, found in self.metrics.items() if found[place] == found[place]
            }
            measurement = Measurement(
                cell=self.planned[place],
                status=status,
                started_at=_iso(self.started_at[place]),
                wall_s=float(self.wall_s[place]),
                metrics=metrics,
                program_id=self.programs[place],
                environment_id=self.environment_id,
                failure=failure,
            )
            yield _with_evidence(measurement, random) if samples else measurement

    def write(self, folder: Path, *, samples: bool) -> Path:
        """Write the night as a closed bundle and return its path."""
        writer = BundleWriter(folder, self.header, self.planned)
        writer.environment(self.environment_id, environment_of(self.number))
        for measurement in self.measurements(samples=samples):
            writer.program(str(measurement.program_id), options_of(str(measurement.program_id)))
            writer.measurement(measurement)
        return writer.close(_iso(self.finished_at))


class World:
    """The constants of all nights: cells with their levels, steps and chronic failures."""

    def __init__(self, shape: Shape, seed: int = 1) -> None:
        if not 1 <= shape.configs <= len(CONFIGS):
            raise ValueError(f"there are 1 to {len(CONFIGS)} synthetic configs, not {shape.configs}")
        self.shape, self.seed = shape, seed
        random = np.random.default_rng([seed, 0])
        models, configs = shape.models, shape.configs
        # In the order of a plan: config by config, and every model under each.
        self.cells = tuple(
            Cell(SUITES[model % 3], f"{WORD}_{model:03d}", Phase.INFERENCE, "bfloat16", "cuda", 8, config)
            for config, model in itertools.product(CONFIGS[:configs], range(models))
        )
        self.eager_ms = np.tile(random.lognormal(2.3, 0.8, models), configs)
        self.device_share = np.tile(random.uniform(0.3, 0.98, models), configs)
        self.speedup = np.tile(random.lognormal(0.35, 0.2, models), configs) * random.lognormal(0, 0.1, len(self.cells))
        self.compile_s = np.tile(random.lognormal(3, 0.6, models), configs) * random.uniform(0.8, 2.5, len(self.cells))
        self.peak_bytes = np.tile(np.round(random.lognormal(0, 1, models) * _GIB), configs)
        self.kernels = np.tile(random.integers(5, 400, models), configs).astype(float)
        self.breaks = np.tile((random.random(models) < 0.1) * random.integers(1, 7, models), configs).astype(float)
        self.step_at = random.integers(1, max(2, shape.commits), len(self.cells))
        self.step = np.where(random.random(len(self.cells)) < 0.1, random.lognormal(0, 0.06, len(self.cells)), 1.0)
        self.fails_from = random.integers(0, max(1, shape.commits), len(self.cells))
        self.fails_as = np.where(random.random(len(self.cells)) < 0.04, random.integers(1, 5, len(self.cells)), _PASS)

    def night(self, number: int) -> Night:
        """Return the night with this number, 0 being the oldest; it does not depend on earlier calls."""
        random, count = np.random.default_rng([self.seed, 1, number]), len(self.cells)
        starts = np.round(_FIRST + number * _DAY_S + 60 + np.arange(count) * _CELL_S + random.uniform(0, 4, count), 3)
        by_chance = np.where(random.random(count) < 0.01, random.integers(1, 5, count), _PASS)
        ended = np.where((self.fails_as != _PASS) & (number >= self.fails_from), self.fails_as, by_chance)
        values = self._values(number, random)
        for kind in _FAILURES:
            for name in values.keys() - set(_BY_THEN[kind]):
                values[name] = np.where(ended == kind, np.nan, values[name])
        programs = [program_id_of(number, config) for config in CONFIGS[: self.shape.configs]]
        return Night(
            number=number,
            header=self._header(number),
            planned=self.cells,
            is_measured=random.random(count) >= 0.003,
            ended=ended,
            started_at=starts,
            wall_s=np.round(random.uniform(8, 90, count), 3),
            # Only metrics that nights measure without options.
            metrics={name: values[name] for name in METRICS if name in values},
            programs=tuple(np.repeat(programs, self.shape.models).tolist()),
            environment_id=short_hash(environment_of(number)),
        )

    @cached_property
    def commits(self) -> list[dict[str, Any]]:
        """The rows of all commits for the store."""
        return [
            {
                "repo": REPO,
                "sha": hashlib.sha1(f"{WORD} {self.seed} {number}".encode(), usedforsecurity=False).hexdigest(),
                "author_date": _FIRST + number * _DAY_S - 7200,
                "committed_at": _FIRST + number * _DAY_S - 3600,
                "title": f"{WORD} commit {number} (#{1000 + number})",
                "pr_number": 1000 + number,
                "position": number,
            }
            for number in range(self.shape.commits)
        ]

    def _header(self, number: int) -> RunHeader:
        commit = self.commits[number] if number < self.shape.commits else self.commits[-1]
        return RunHeader(
            run_id=f"{WORD}-{number:04d}",
            branch=WORD,
            commit=commit["sha"],
            testbed=TESTBED,
            started_at=_iso(_FIRST + number * _DAY_S),
            repo=REPO,
            trigger="nightly",
            label=WORD,
            commit_date=_iso(commit["author_date"]),
            commit_title=commit["title"],
            tool_version=WORD,
        )

    def _values(self, number: int, random: np.random.Generator) -> dict[str, Values]:
        """Return all metrics of a night in which every cell passes."""
        count = len(self.cells)

        def noisy(values: Values, spread: float) -> Values:
            return values * random.lognormal(0, spread, count)

        level = self.eager_ms / self.speedup * np.where(number >= self.step_at, self.step, 1.0)
        eager, compiled = noisy(self.eager_ms, 0.005), noisy(level, 0.005)
        eager_kernel = noisy(self.eager_ms * self.device_share, 0.001)
        compiled_kernel = noisy(level * self.device_share * 0.95, 0.001)
        smaller = np.round(self.peak_bytes / 512 * np.clip(1 / self.speedup, 0.5, 1)) * 512
        return {
            "eager_ms": eager,
            "compiled_ms": compiled,
            "speedup": eager / compiled,
            "eager_kernel_ms": eager_kernel,
            "compiled_kernel_ms": compiled_kernel,
            "device_speedup": eager_kernel / compiled_kernel,
            "compile_cold_s": noisy(self.compile_s, 0.05),
            "eager_peak_bytes": self.peak_bytes,
            "compiled_peak_bytes": smaller,
            "compression": self.peak_bytes / smaller,
            "graphs": self.breaks + 1,
            "graph_breaks": self.breaks,
            "recompiles": np.zeros(count),
            "cudagraph_skips": np.zeros(count),
            "fallbacks": np.zeros(count),
            # Most versions of torch do not count these: they are not measured, which is not 0.
            "cudagraph_partitions": np.full(count, np.nan),
            "kernels_generated": self.kernels,
            "kernels_extern": np.floor(self.kernels * 0.6),
            "error_rmse_ratio": random.lognormal(0, 0.05, count),
            "cosine": 1 - random.uniform(0, 1e-4, count),
            "leak_bytes_per_call": np.zeros(count),
        }


def program_id_of(number: int, config: Config) -> str:
    """Return the id of the program that the torch of a night makes of a config; it changes every hundred nights."""
    return short_hash({WORD: number // _EVERY, "config": config.to_json()})


@cache
def options_of(program_id: str) -> dict[str, Any]:
    """Return invented options of a program, as many as a real program has."""
    return {"backend": "inductor", "program": program_id} | {f"{WORD}.option_number_{n:03d}": False for n in range(550)}


def environment_of(number: int) -> dict[str, Any]:
    """Return the fingerprint of a night: torch's commit changes every night, some libraries every hundred nights."""
    return {
        **TESTBED,
        "torch_git": hashlib.sha1(f"{WORD} {number}".encode(), usedforsecurity=False).hexdigest(),
        "torch": f"{WORD} build {number}",
        "triton": f"{WORD} 3.{number // _EVERY}",
        **{f"{WORD}_library_{n}": f"1.{number // _EVERY}.{n}" for n in range(16)},
    }


def _with_evidence(measurement: Measurement, random: np.random.Generator) -> Measurement:
    """Add 30 samples of both latencies, rounded to nanoseconds, and details as long as real ones; a failure gets a log."""
    if measurement.failure:
        return replace(measurement, log_tail=f"{WORD} log\n" + '  File "model.py", line 12, in forward\n' * 30)
    samples = {
        name: np.round(measurement.metrics[name] * random.lognormal(0, 0.01, _ROUNDS), 6).tolist()
        for name in ("eager_ms", "compiled_ms")
    }
    kernels = [
        [
            f"{WORD}_kernel_{random.integers(1 << 62):x}_{random.integers(1 << 62):x}_vectorized_elementwise" * 2,
            3.0,
            value,
        ]
        for value in np.round(random.lognormal(0, 1, 30), 6).tolist()
    ]
    stages = dict(zip(Stage, np.round(random.uniform(0, 9, len(Stage)), 3).tolist(), strict=True))
    details = {"stage_s": {str(stage): spent for stage, spent in stages.items()}, "compiled_kernels": kernels}
    return replace(measurement, samples=samples, details=details)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def open_filled(place: str | Path, shape: Shape, seed: int = 1, *, stored: int | None = None) -> Engine:
    """Open the store at a place for writing, and fill it first if it is empty. Exit if it has other runs.

    With `stored` only that many of the oldest nights are filled in; `add_night` adds the others.
    """
    engine = open_store(place, write=True)
    with engine.begin() as conn:
        labels = set(conn.execute(select(Run.label).distinct()).scalars())
        if labels - {WORD}:
            sys.exit("this store holds runs that are not synthetic: name another place with --db")
        if labels:
            return engine
        conn.execute(insert(Commit), _world(shape, seed).commits)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        workers = min(os.cpu_count() or 1, shape.commits // 50)
        each = stack.enter_context(ProcessPoolExecutor(workers)).map if workers else map
        for path in each(
            partial(_write, shape, seed, Path(folder)), range(shape.commits if stored is None else stored)
        ):
            ingest_bundle(engine, path)
    # As autovacuum does in time: make statistics for the planner, and the map that index-only reads need.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("ANALYZE" if engine.dialect.name == "sqlite" else "VACUUM ANALYZE")
    return engine


def add_night(engine: Engine, shape: Shape, number: int, seed: int = 1) -> None:
    """Store one more night of a shape."""
    with TemporaryDirectory() as folder:
        ingest_bundle(engine, _write(shape, seed, Path(folder), number))


@cache
def _world(shape: Shape, seed: int) -> World:
    return World(shape, seed)


def _write(shape: Shape, seed: int, folder: Path, number: int) -> Path:
    return _world(shape, seed).night(number).write(folder, samples=number >= shape.commits - shape.sampled)

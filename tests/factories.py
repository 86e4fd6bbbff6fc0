"""Synthetic bundles for tests: plausible random numbers, written through the collector's own writer.

Every run made here is labelled "synthetic test data", so that none of it can be taken for a measurement.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Engine

from collector.bundle import BundleWriter, RunHeader
from collector.code import Code
from collector.vocabulary import Cell, Config, Failure, Measurement, Phase, Stage, Status, short_hash
from db.engine import open_store

LABEL = "synthetic test data"
START = datetime(2026, 8, 1, 2, 0, tzinfo=UTC)
TESTBED = {"accelerator": "Synthetic GPU", "driver": "1.0", "cores": 4}
ENVIRONMENT = {"torch": {"version": "2.13.0", "git": "a" * 40}, "triton": "3.6.0", "gpu": "Synthetic GPU"}
DEFAULT, CUDAGRAPHS, MAX_AUTOTUNE = Config(), Config(template="cudagraphs"), Config(mode="max-autotune")
CONFIGS = (DEFAULT, CUDAGRAPHS, MAX_AUTOTUNE)
COMMIT_A, COMMIT_B, COMMIT_C = "a1" * 20, "b2" * 20, "c3" * 20


@cache
def _empty_store() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        open_store(path, write=True).dispose()
        return path.read_bytes()


def new_store(path: Path) -> Engine:
    """An empty store in a file, open for writing; migrated once and copied, since every test wants one."""
    path.write_bytes(_empty_store())
    return open_store(path, write=True)


def at(minutes: float) -> str:
    """A moment that many minutes after the synthetic epoch, ISO 8601."""
    return (START + timedelta(minutes=minutes)).isoformat()


def header(run_id: str, *, minutes: float = 0, **changes: Any) -> RunHeader:
    """A run's first line."""
    found = RunHeader(
        run_id=run_id,
        branch="main",
        commit=COMMIT_A,
        testbed=TESTBED,
        started_at=at(minutes),
        label=LABEL,
        trigger="test",
        commit_date="2026-07-31T12:00:00+00:00",
        commit_title="Make it faster (#154667)",
        tool_version="0.1.0",
    )
    return replace(found, **changes)


def cell(model: str = "bert", config: Config = DEFAULT, **changes: Any) -> Cell:
    """A cell of suite `huggingface`, bf16 inference on cuda, unless told otherwise."""
    found = Cell("huggingface", model, Phase.INFERENCE, "bfloat16", "cuda", 8, config)
    return replace(found, **changes)


def matrix(models: Sequence[str] = ("bert", "gpt2", "t5"), configs: Sequence[Config] = CONFIGS) -> list[Cell]:
    """Every model under every config."""
    return [cell(model, config) for model in models for config in configs]


def passing(
    which: Cell, *, minutes: float = 1, slower: float = 1.0, seed: int = 0, rounds: int = 9, **changes: Any
) -> Measurement:
    """A pass with samples; `slower` multiplies the compiled latencies."""
    rng = random.Random(f"{which.cell_id}/{seed}")
    base = 2.0 + int(short_hash(which.model), 16) % 700 / 100
    eager = [base * rng.uniform(0.99, 1.03) for _ in range(rounds)]
    compiled = [base * slower * rng.uniform(0.495, 0.515) for _ in range(rounds)]
    eager_ms, compiled_ms = sorted(eager)[rounds // 2], sorted(compiled)[rounds // 2]
    metrics = {
        "eager_ms": eager_ms,
        "compiled_ms": compiled_ms,
        "speedup": eager_ms / compiled_ms,
        "eager_kernel_ms": base * 0.8,
        "compiled_kernel_ms": base * 0.4 * slower,
        "device_speedup": 2.0 / slower,
        "compile_cold_s": rng.uniform(10, 30),
        "eager_peak_bytes": 2.0e9,
        "compiled_peak_bytes": 1.6e9,
        "compression": 1.25,
        "graphs": 1.0,
        "graph_breaks": 0.0,
        "kernels_generated": 17.0,
    }
    found = Measurement(
        cell=which,
        status=Status.PASS,
        started_at=at(minutes),
        wall_s=21.5,
        metrics=metrics,
        samples={"eager_ms": eager, "compiled_ms": compiled},
        details={"kernels": ["triton_poi_fused_add_0", "triton_red_fused_1"]},
        program_id=short_hash({"program": which.config.to_json()}),
        environment_id=short_hash(ENVIRONMENT),
    )
    return replace(found, **changes)


def failing(which: Cell, status: Status = Status.FAIL_TO_COMPILE, *, minutes: float = 1, **changes: Any) -> Measurement:
    """A failure with its stage, exception, message and the end of the log."""
    found = Measurement(
        cell=which,
        status=status,
        started_at=at(minutes),
        wall_s=3.25,
        metrics={"eager_ms": 4.0},
        program_id=short_hash({"program": which.config.to_json()}),
        environment_id=short_hash(ENVIRONMENT),
        failure=Failure(Stage.COMPILE, "BackendCompilerFailed", "no kernel fits", "set fullgraph=False"),
        log_tail="Traceback (most recent call last):\n  ...\nBackendCompilerFailed: no kernel fits",
    )
    return replace(found, **changes)


def write_bundle(
    folder: Path,
    head: RunHeader,
    measurements: Sequence[Measurement],
    *,
    planned: Sequence[Cell] | None = None,
    environment: dict[str, Any] | None = None,
    closed: bool = True,
    codes: Sequence[tuple[Code, Mapping[str, str]]] = (),
) -> Path:
    """A bundle of these measurements; it plans their cells unless told what it plans. Returns its path.

    `codes` are the generated codes behind the measurements' code_ids, with their texts by id.
    """
    cells = [item.cell for item in measurements] if planned is None else list(planned)
    writer = BundleWriter(folder, head, dict.fromkeys(cells))
    for code, texts in codes:
        writer.code(code.to_json(), texts)
    for item in measurements:
        if item.environment_id:
            writer.environment(item.environment_id, environment or ENVIRONMENT)
        if item.program_id:
            writer.program(item.program_id, {"backend": "inductor", "triton.cudagraphs": False})
        writer.measurement(item)
    if closed:
        return writer.close(at(600))
    writer.abandon()
    return writer.path


def night(
    folder: Path,
    run_id: str,
    *,
    minutes: float = 0,
    cells: Sequence[Cell] | None = None,
    make: Callable[[Cell], Measurement] | None = None,
    seed: int = 0,
    **changes: Any,
) -> Path:
    """A closed bundle in which every cell of the matrix passed, or came out as `make` says."""
    found = matrix() if cells is None else list(cells)
    measured = [make(item) if make else passing(item, minutes=minutes + 1, seed=seed) for item in found]
    return write_bundle(folder, header(run_id, minutes=minutes, **changes), measured)

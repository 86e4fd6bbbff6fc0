"""Stores full of synthetic runs (their label says so), for the dashboard's tests."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collector.vocabulary import Cell, Measurement, Phase, Status
from db.engine import open_store
from db.ingest import ingest_bundle
from tests.factories import CONFIGS, LABEL, cell, failing, header, night, passing, write_bundle

__all__ = ["LABEL", "header", "night", "write_bundle"]

ROOT = Path(__file__).parents[2]
HOSTILE = "<script>alert(1)</script>*_`$x$"
SHAS = ("a1" * 20, "b2" * 20, "c3" * 20, "d4" * 20)


def cells() -> list[Cell]:
    trained = {"phase": Phase.TRAINING, "dtype": "amp"}
    found = [cell(model, config) for model in ("bert", "gpt2", "t5", "opt") for config in CONFIGS]
    found += [cell(model, config, suite="timm") for model in ("resnet50", "vit_base") for config in CONFIGS]
    return found + [cell(model, config, **trained) for model in ("bert", "gpt2") for config in CONFIGS]


def measure(minutes: float, slower: Sequence[str] = (), failing_models: Sequence[str] = (), seed: int = 0):
    """How each cell came out: `slower` models take a fifth longer, `failing_models` do not compile under cudagraphs."""

    def make(which: Cell) -> Measurement:
        if which.model in failing_models and which.config.name == "cudagraphs":
            explained = {"explained": {"backend": "inductor", "subsystem": "lowerings", "target": "<gelu>"}}
            return failing(which, minutes=minutes, details=explained)
        if which.config.name == "max-autotune" and which.model == "vit_base":
            return failing(which, Status.UNAVAILABLE, minutes=minutes)
        found = passing(which, minutes=minutes, slower=1.2 if which.model in slower else 1.0, seed=seed)
        slow = found.metrics["compiled_kernel_ms"]
        kernels = [["triton_poi_fused_add_0", 12.0, slow * 0.7], ["triton_red_fused_1", 6.0, slow * 0.2]]
        kernels += [[f"gemm_{seed % 2}", 2.0, slow * 0.1]]
        details = {
            "compiled_kernels": kernels,
            "eager_kernels": [["at::native::add", 40.0, found.metrics["eager_kernel_ms"]]],
            "saved_tensors": [["mul", [64, 512], "float32", 2 + seed, (2 + seed) << 17]],
            "host_parts_us": {"guards": 20.0 + seed, "launches": 60.0},
            "peak_lines": [["(before the call)", 0, 900_000_000], ["buf = <b>empty</b>(4)", 1 + seed, 16]],
            "nearest_to_limit": "output['logits']",
            "outside_kernels": [["Memcpy DtoD (Device -> Device)", 3.0, 0.02]],
        }
        return replace(found, details=details | {"graph_break_reasons": {"print() <b>called</b>": 1}})

    return make


def run(
    folder: Path,
    run_id: str,
    day: float = 0,
    *,
    which: Sequence[Cell] | None = None,
    slower: Sequence[str] = (),
    failing_models: Sequence[str] = (),
    seed: int = 0,
    **head: Any,
) -> Path:
    """A bundle of a run that began on that day (see `measure`); `head` is what else its header has."""
    minutes = 1440.0 * day
    make = measure(minutes + 1, slower, failing_models, seed)
    return night(folder, run_id, minutes=minutes, cells=which or cells(), make=make, **head)


@cache
def _filled(runs: int) -> bytes:
    with TemporaryDirectory() as name:
        folder = Path(name)
        bundles = repeats(folder) if runs > 1 else []
        for index in range(runs):
            is_last = index == runs - 1 and runs > 1
            changed = {"slower": ("gpt2",), "failing_models": ("opt",)} if is_last else {"failing_models": ("t5",)}
            bundles.append(run(folder, f"night-{index}", index, seed=index, commit=SHAS[index % len(SHAS)], **changed))
        return store(folder / "store.db", bundles).read_bytes()


def fill(path: Path, runs: int = 2) -> Path:
    """A store with that many nights of main: in the last one gpt2 is slower and opt no longer compiles. Made once, and copied.

    Before several nights a branch was measured twice, so that the noise from run to run is known.
    """
    path.write_bytes(_filled(runs))
    return path


def repeats(folder: Path, which: Sequence[Cell] | None = None) -> list[Path]:
    """One commit of another branch, measured twice before all else: equal but for the noise."""
    head: dict[str, Any] = {"which": which, "branch": "repeats", "commit": SHAS[3]}
    return [run(folder, f"again-{at}", -at - 1, seed=100 + at, **head) for at in range(2)]


@cache
def _shipped() -> bytes:
    with TemporaryDirectory() as folder:
        nights = sorted((ROOT / "data" / "nights").glob("*.jsonl.*"))
        return store(Path(folder, "store.db"), nights).read_bytes()


def shipped(path: Path) -> Path:
    """A store of the nights on GPUs that came with the checkout: a and b of one commit, then c. Ingested once, and copied."""
    path.write_bytes(_shipped())
    return path


def store(path: Path, bundles: Sequence[Path]) -> Path:
    engine = open_store(path, write=True)
    for bundle in bundles:
        ingest_bundle(engine, bundle)
    engine.dispose()
    return path

"""Mutated CSV and benchmark-v3 files: a result or the importer's one line, and every row that was left whole is there.

The files are synthetic, in the forms of PyTorch's nightly: a performance CSV, an accuracy CSV, JSON lines, a JSON array.
"""

from __future__ import annotations

import csv
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from collector.bundle import BundleError, read_bundle
from db.errors import StoreError
from db.importing.cells import Given
from db.importing.importer import ImportReport, import_files, store
from db.importing.rows import ImportingError
from db.importing.runs import Provenance
from tests.chaos import material
from tests.chaos.mutators import mutate
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import COMMIT_A, LABEL, new_store

ASKED = Provenance(branch="main", commit=COMMIT_A, date="2026-08-01T02:00:00+00:00", label=LABEL)
STEM = "inductor_no_cudagraphs_huggingface_amp_inference_cuda"
_MODELS = {f"Synthetic{letter}ForTest": 1.25 + number / 8 for number, letter in enumerate("ABCDEFGH")}
#: Of so many imports one goes on into a store.
_EACH = 20
_HEAD = "dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,eager_peak_mem,dynamo_peak_mem"


def performance_csv() -> bytes:
    """A performance table."""
    rows = [f"cuda,{name},8,{speedup},12.5,30.25,1.1,2.5,2.25" for name, speedup in _MODELS.items()]
    return "\n".join([_HEAD, *rows, ""]).encode()


def accuracy_csv() -> bytes:
    """An accuracy table."""
    rows = [f"cuda,{name},8,pass,157,1,0,0,0,0,0,0,6.5" for name in _MODELS]
    return "\n".join([_HEAD_OF_ACCURACY, *rows, ""]).encode()


_HEAD_OF_ACCURACY = (
    "dev,name,batch_size,accuracy,calls_captured,unique_graphs,fallbacks_to_eager,graph_breaks,"
    "unique_graph_breaks,autograd_captures,autograd_compiles,cudagraph_skips,compilation_latency"
)


def _records() -> list[dict[str, object]]:
    return [
        {
            "benchmark": {
                "name": "TorchInductor",
                "mode": "inference",
                "dtype": "bfloat16",
                "extra_info": {"device": "cuda", "batch_size": 8},
            },
            "model": {"name": name, "type": "OSS model", "backend": "inductor", "origins": ["huggingface"]},
            "metric": {"name": "speedup", "type": "OSS model", "benchmark_values": [speedup]},
        }
        for name, speedup in _MODELS.items()
    ]


def json_lines() -> bytes:
    """Records, one a line."""
    return "".join(json.dumps(record) + "\n" for record in _records()).encode()


def json_array() -> bytes:
    """Records in one array."""
    return json.dumps(_records(), indent=1).encode()


def tables(setting: Setting) -> Tally:
    """Tables, performance and accuracy in turn."""
    tally = Tally("mutated: CSV")
    tries = setting.amount(3000, 30)
    with_speedup, without = performance_csv(), accuracy_csv()
    _run(setting, tally, f"{STEM}_performance.csv", with_speedup, tries // 2, _whole_rows)
    _run(setting, tally, f"{STEM}_accuracy.csv", without, tries - tries // 2, _whole_rows)
    return tally


def records(setting: Setting) -> Tally:
    """Benchmark-v3 files, lines and arrays."""
    tally = Tally("mutated: v3 JSON")
    tries = setting.amount(2500, 30)
    _run(setting, tally, "records.json", json_lines(), tries * 3 // 5, _whole_records)
    _run(setting, tally, "array.json", json_array(), tries - tries * 3 // 5, lambda _one, _two: set())
    return tally


def _whole_rows(source: bytes, changed: bytes) -> set[str]:
    """Models of the rows that are as they were, under the heading that was; none of a file that lost its heading.

    A quote that was put in makes one row of several, as the rules of CSV have it; then nobody can say what is whole.
    """
    lines, before = changed.split(b"\n"), source.split(b"\n")
    if lines[0] != before[0] or b'"' in changed or b"\r" in changed or changed.count(before[0]) != 1:
        return set()
    rows = [line.decode() for line in lines[1:-1] if line in before[1:]]
    return {row[1] for row in csv.reader(rows) if len(row) > 1}


def _whole_records(source: bytes, changed: bytes) -> set[str]:
    before = {line for line in source.split(b"\n") if line}
    found = [material.as_record(line) for line in changed.split(b"\n")[:-1] if line in before]
    return {str(record["model"]["name"]) for record in found if record}


def _run(
    setting: Setting, tally: Tally, name: str, data: bytes, tries: int, whole: Callable[[bytes, bytes], set[str]]
) -> None:
    path = setting.folder / name
    engine = new_store(setting.folder / f"{path.stem}.db")
    began = time.monotonic()
    for number in range(tries):
        kind, changed = mutate(data, setting.rng)
        path.write_bytes(changed)
        tally.tries += 1
        folder = setting.folder / f"{path.stem}-{number}"
        try:
            report = import_files([path], ASKED, Given(), folder)
            if number % _EACH == 0:
                store(engine, report)
        except (ImportingError, BundleError, StoreError) as error:
            tally.hits["refused in one line"] += 1
            _check_line(tally, kind, str(error))
            continue
        except Exception as error:
            tally.trace(f"{name} {kind}: {type(error).__name__}: {error} {traceback.format_exc(limit=-2)}")
            continue
        _check(setting, tally, report, whole(data, changed), f"{name} {kind}")
    engine.dispose()
    tally.notes.append(
        f"{name}: {tries / (time.monotonic() - began):.0f} inputs a second, one of {_EACH} was stored too"
    )


def _check_line(tally: Tally, kind: str, text: str) -> None:
    if "\n" in text or not text.isprintable():
        tally.err(f"{kind}: the error has several lines: {text!r}")


def _check(setting: Setting, tally: Tally, report: ImportReport, must: set[str], kind: str) -> None:
    problems = [*report.problems, *(file.problem for file in report.files)]
    for text in problems:
        _check_line(tally, kind, text)
    tally.hits["imported, damage told" if any(problems) else "imported"] += 1
    bundles = [Path(run.bundle) for run in report.runs]
    if must and bundles:
        setting.meddle_bundle(bundles[0])
    measured = [item for path in bundles for item in read_bundle(path).measurements]
    found = {item.cell.model for item in measured}
    tally.lose(len(must - found), f"{kind}: rows that were whole: {sorted(must - found)[:3]} {problems[:1]}")
    for name in must & found:
        told = [item.metrics.get("speedup") for item in measured if item.cell.model == name]
        if "accuracy" not in kind and _MODELS[name] not in told:
            tally.lose(1, f"{kind}: the speedup of {name}: {told}")
    keys = [(path, item.cell.cell_id, item.replicate) for path in bundles for item in read_bundle(path).measurements]
    tally.double(len(keys) - len(set(keys)), f"{kind}: measurements")

"""Mutated bundles and imports, and hostile names: a result or one line, and every line that was left whole is stored."""

from __future__ import annotations

import csv
import gzip
import json
import re
import unicodedata
import zlib
from dataclasses import replace

import pytest

from collector.bundle import read_bundle
from collector.usage_errors import BundleError
from collector.vocabulary import Config, Measurement
from db.importing.importer import Provenance, import_files, store
from db.importing.pytorch_names import Given
from db.importing.result_rows import ImportingError
from db.ingest import ingest_bundle
from db.nights import list_runs
from db.queries.details import measurement
from db.store_errors import StoreError
from db.stored_values import clean
from tests.chaos.world import CELLS, cli, rng, tries
from tests.factories import COMMIT_A, COMMIT_B, LABEL, cell, failing, header, new_store, night, passing, write_bundle

__all__ = ["rng"]
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ODD_NUMBERS = (*b'NaN|Infinity|-Infinity|1e999|-1|0|1e-400|null|true|"7"||'.split(b"|"), b"9" * 400)
ODD_BYTES = (
    *(b"\x00", b"\xff\xfe", b"\xc3", b'"', b"\\", b"\\ud800", b"\r", b"\n\n", b",,,,", b"{", b"[]", b"\xef\xbb\xbf"),
    *(b"\x1f\x8b", b"\xe2\x80\xa8", b"\x1b[2J", b"[" * 3000, b'{"a":' * 3000, b"x" * 20000, b"\n" + b"7," * 500),
)


def mutate(data, rng):
    """Scratches, cuts, odd numbers, or lines in another order; two of them in every fifth case."""
    kind = rng.choice(["scratch", "cut", "behead", "insert", "remove", "number", "swap", "repeat", "leave"])
    changed, at = bytearray(data), rng.randrange(len(data))
    if kind == "scratch":
        for _ in range(rng.randint(1, 30)):
            changed[rng.randrange(len(data))] = rng.randrange(256)
    elif kind in ("cut", "behead", "remove"):
        del changed[{"cut": slice(at, None), "behead": slice(at), "remove": slice(at, at + rng.randint(1, 200))}[kind]]
    elif kind == "insert":
        changed[at:at] = rng.choice(ODD_BYTES)
    elif kind == "number" and (numbers := list(NUMBER.finditer(data))):
        number = rng.choice(numbers)
        changed[number.start() : number.end()] = rng.choice(ODD_NUMBERS)
    else:
        lines = data.splitlines(keepends=True)
        line = lines.pop(rng.randrange(len(lines)))
        for _ in range({"repeat": 2, "leave": 0}.get(kind, 1)):
            lines.insert(rng.randrange(len(lines) + 1), line)
        changed = bytearray(b"".join(lines))
    return mutate(bytes(changed), rng) if changed and rng.random() < 0.2 else bytes(changed)


def untouched(source, changed):
    """The measurements of lines that are as they were, less those of cells that a changed line names."""
    before, found, contested = set(source.split(b"\n")), {}, set()
    for line in changed.split(b"\n")[:-1]:
        try:
            item = Measurement.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
        if line in before:
            found[item.cell.cell_id] = item.wall_s
        else:
            contested.add(item.cell.cell_id)
    return {cell_id: value for cell_id, value in found.items() if cell_id not in contested}


@pytest.mark.parametrize("is_packed", [False, True])
def test_what_is_whole_in_a_mutated_bundle_is_stored(is_packed, tmp_path, rng):
    items = [passing(cell, rounds=5, wall_s=float(number)) for number, cell in enumerate(CELLS)]
    source = write_bundle(tmp_path, header("m"), items, closed=False).read_bytes()
    data = gzip.compress(source, mtime=0) if is_packed else source
    path = tmp_path / ("mutated.jsonl.gz" if is_packed else "mutated.jsonl")
    engine = new_store(tmp_path / "mutated.db")
    with engine.connect() as connection:
        for _ in tries(800, 40):
            changed = mutate(data, rng)
            path.write_bytes(changed)
            whole = text_before_the_change(data, changed) if is_packed else changed
            transaction = connection.begin()
            try:
                run_id = ingest_bundle(connection, path).run_id
            except (BundleError, StoreError) as error:
                assert str(error).isprintable()
                assert b"\n" not in whole or whole.split(b"\n")[0] != source.split(b"\n")[0], error
            else:
                for cell_id, wall_s in untouched(source, whole).items():
                    stored = measurement(connection, run_id, cell_id)
                    assert stored is not None and stored.wall_s == wall_s
            finally:
                transaction.rollback()
    engine.dispose()


def text_before_the_change(data, changed):
    """What the compressed bytes before the first changed one say: no reader can know more."""
    same = next((at for at, (one, two) in enumerate(zip(data, changed, strict=False)) if one != two), None)
    return zlib.decompressobj(wbits=31).decompress(changed[: min(len(data), len(changed)) if same is None else same])


MODELS = {f"Synthetic{letter}ForTest": 1.25 + number / 8 for number, letter in enumerate("ABCDEFGH")}
ORIGIN = {"branch": "main", "commit": COMMIT_A, "date": "2026-08-01T02:00:00+00:00", "label": LABEL}
STEM = "inductor_no_cudagraphs_huggingface_amp_inference_cuda"
HEAD = "dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,eager_peak_mem,dynamo_peak_mem"
BENCHMARK = {"name": "TorchInductor", "mode": "inference", "dtype": "bfloat16"}
RECORDS = [
    {
        "benchmark": {**BENCHMARK, "extra_info": {"device": "cuda", "batch_size": 8}},
        "model": {"name": name, "type": "OSS model", "backend": "inductor", "origins": ["huggingface"]},
        "metric": {"name": "speedup", "type": "OSS model", "benchmark_values": [speedup]},
    }
    for name, speedup in MODELS.items()
]
ROWS = [f"cuda,{name},8,{speedup},12.5,30.25,1.1,2.5,2.25" for name, speedup in MODELS.items()]
#: Files in the forms of PyTorch's nightly.
IMPORTS = {
    f"{STEM}_performance.csv": "\n".join([HEAD, *ROWS, ""]).encode(),
    "records.json": "".join(json.dumps(record) + "\n" for record in RECORDS).encode(),
    "array.json": json.dumps(RECORDS, indent=1).encode(),
}


def whole_models(name, source, changed):
    """Models of the rows or records that are as they were. With a quote put in nobody can say which rows of a CSV are whole."""
    before, lines = source.split(b"\n"), changed.split(b"\n")
    if name == "records.json":
        return {json.loads(line)["model"]["name"] for line in lines[:-1] if line in before and line}
    is_odd = any(char in changed for char in (b'"', b"\r")) or changed.count(before[0]) != 1
    if is_odd or lines[0] != before[0] or name == "array.json":
        return set()
    return {row[1] for row in csv.reader(line.decode() for line in lines[1:-1] if line in before[1:]) if len(row) > 1}


@pytest.mark.parametrize("name", IMPORTS)
def test_what_is_whole_in_a_mutated_import_is_stored(name, tmp_path, rng):
    path, engine = tmp_path / name, new_store(tmp_path / "imported.db")
    for number in tries(250, 15):
        changed = mutate(IMPORTS[name], rng)
        path.write_bytes(changed)
        try:
            report = import_files([path], Provenance(**ORIGIN), Given(), tmp_path / str(number))
            if number % 20 == 0:
                store(engine, report)
        except (ImportingError, BundleError, StoreError) as error:
            assert str(error).isprintable()
            continue
        assert all(text.isprintable() for text in (*report.problems, *(file.problem for file in report.files)))
        items = [item for run in report.runs for item in read_bundle(tmp_path / run.bundle).measurements]
        speedups = {(item.cell.model, item.metrics.get("speedup")) for item in items}
        whole = whole_models(name, IMPORTS[name], changed)
        assert {(model, MODELS[model]) for model in whole} <= speedups, (report.problems, changed)
    engine.dispose()


NAMES = {
    "quotes": 'it\'s "quoted"; DROP TABLE runs; -- %_*?[a-z]',
    "lines": "one\ntwo\rthree\r\nfour\tfive\a\b\u2028six\u2029seven\x85eight\x0bnine\x0c",
    "script": "<script>alert(1)</script>[bold red]x[/] [link=file:///etc/passwd]y[/link]",
    "10 kB": "long " * 2000,
    "turned round": "\U0001f525\U0001f469\u200d\U0001f4bb\u202egnp.exe\u200f\u05d0 e\u0301" + "\u0300" * 50,
    "escape": "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\x9b31mred\x9d0;title\x9c",
    "path up": "../../escaped",
    "absolute path": "/tmp/chaos-escaped",  # noqa: S108
    "dots": "..",
    "backslashes": "..\\..\\x",
    "NUL": "one\x00two",
    "lone surrogate": "one\ud800two",
    "side words": "latest~1",
    "branch and commit": "main@abc@def",
    "format": "%s {0} {x!r} ${HOME} $(id)",
    "option": "--db",
    "not a number": "NaN",
    "spaces": "  two  spaces  ",
}
HEADER_FIELDS = ("run_id", "branch", "commit", "label", "night", "commit_title")
CELL_FIELDS = ("suite", "model", "config")
FIELDS = ("run_id", "model", *HEADER_FIELDS[1:], "suite", "config", "exception")
#: Categories of characters that steer a terminal, break its lines or turn its text round.
STEERING = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})


def named(field, text):
    """The lines of a run that has the text in one field, its header, and a pass and a failure."""
    head, (one, two) = header("odd", minutes=60, commit=COMMIT_B), (cell("bert"), cell("gpt2"))
    if field in HEADER_FIELDS:
        head = replace(head, **{field: text})
    elif field in CELL_FIELDS:
        odd = Config(template=text) if field == "config" else text
        one, two = replace(one, **{field: odd}), replace(two, **{field: odd}, batch_size=99)
    bad = failing(two)
    if field == "exception":
        bad.failure.exception = bad.failure.message = bad.log_tail = text
    items = [passing(one), bad]
    records = [{"record": "run", "format": 1, **head.to_json()}]
    records += [{"record": "measurement", **item.to_json()} for item in items]
    return "".join(json.dumps(record) + "\n" for record in records), head, items


@pytest.mark.parametrize("field", [*FIELDS[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in FIELDS[2:])])
def test_a_hostile_name_is_kept_and_does_not_steer_the_terminal(field, tmp_path, rng):
    for name in rng.sample(list(NAMES), len(tries(len(NAMES), 2))):
        folder = tmp_path / name
        folder.mkdir()
        text, head, items = named(field, NAMES[name])
        (folder / "odd.jsonl").write_text(text)
        engine = new_store(folder / "x.db")
        ingest_bundle(engine, night(folder, "plain", cells=[cell("bert"), cell("gpt2")]))
        assert ingest_bundle(engine, folder / "odd.jsonl").new == 2
        check_kept(engine, head, items)
        engine.dispose()
        for words in (("runs",), ("runs", "--json"), ("compare", "latest~1", "latest")):
            done = cli(folder, *words, "--db", folder / "x.db")
            done.check_one_line(3)
            assert {unicodedata.category(char) for char in done.out + done.err if char != "\n"}.isdisjoint(STEERING)
            if "--json" in words:
                assert clean(head.run_id) in {row["run_id"] for row in json.loads(done.out)}


def check_kept(engine, head, items):
    run = next(run for run in list_runs(engine) if run.run_id == clean(head.run_id))
    meant = (head.branch, head.commit, head.label, head.commit_title or "", head.night or head.run_id)
    assert (run.branch, run.commit, run.label, run.commit_title, run.night) == tuple(map(clean, meant))
    for item in items:
        stored = measurement(engine, run.run_id, item.cell.cell_id)
        names = (item.cell.suite, item.cell.model, item.cell.config.name)
        assert (stored.cell.suite, stored.cell.model, stored.cell.config) == tuple(map(clean, names))
        assert stored.metrics == item.metrics
        assert not item.failure or stored.message == clean(item.failure.message)

"""Names that nobody would choose: stored and given back as they are, on one line of a terminal, in no other folder."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from collector.bundle import BundleError, BundleWriter, RunHeader
from collector.vocabulary import Cell, Config, Measurement
from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.queries import cells as queries
from db.runs import list_runs
from db.texts import clean
from tests.chaos.processes import Done, cli
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import COMMIT_B, cell, failing, header, new_store, passing

NAMES = {
    "single quote": "it's",
    "double quotes": '"quoted"',
    "newline": "one\ntwo",
    "carriage return": "one\rtwo\r\nthree",
    "tab and bell": "one\ttwo\a\b",
    "other line ends": "one\u2028two\u2029three\x85four\x0bfive\x0csix",
    "script": "<script>alert(1)</script>",
    "markup": "[bold red]x[/] [link=file:///etc/passwd]y[/link]",
    "10 kB": "long " * 2000,
    "emoji": "\U0001f525\U0001f469\u200d\U0001f4bb",
    "right to left": "\u202egnp.exe\u200f\u05d0",
    "escape": "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
    "C1 escape": "\x9b31mred\x9d0;title\x9c",
    "SQL": "'; DROP TABLE runs; --",
    "SQL wildcard": "%_*?[a-z]",
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
    "combining": "e\u0301" + "\u0300" * 50,
    "not a number": "NaN",
    "spaces": "  two  spaces  ",
}
FIELDS = ("run_id", "branch", "commit", "label", "night", "testbed", "suite", "model", "config", "title", "exception")
#: Categories of characters that steer a terminal, break its lines or turn its text round.
_STEERING = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
_LONGEST_LINE = 2000


def run(setting: Setting) -> Tally:
    """Every name in every field: kept, given back, printed on its own line, written into no other folder."""
    tally = Tally("names")
    every = [(field, name) for field in FIELDS for name in NAMES]
    for number, (field, name) in enumerate(setting.rng.sample(every, setting.amount(len(every), 24))):
        folder = setting.folder / f"try{number}"
        folder.mkdir()
        _try(setting, tally, folder, field, name, is_printed=number % 8 == 0)
    for name in NAMES:
        _write_and_look_around(setting, tally, name)
    return tally


def _try(setting: Setting, tally: Tally, folder: Path, field: str, name: str, *, is_printed: bool) -> None:
    base = header("plain"), [passing(cell("bert")), passing(cell("gpt2"))]
    head, found = _with(field, NAMES[name])
    path = folder / "names.db"
    engine = new_store(path)
    tally.tries += 1
    try:
        for number, (first, items) in enumerate((base, (head, found))):
            bundle = folder / f"bundle{number}.jsonl"
            bundle.write_text(_text(first, items), encoding="utf-8")
            report = ingest_bundle(engine, bundle)
            if report.new != len(items):
                tally.lose(len(items) - report.new, f"{field} {name}: {report.damage}")
        engine.dispose()
        setting.meddle_store(str(path))
        engine = open_store(path, write=False)
        for first, items in (base, (head, found)):
            _check_stored(tally, engine, field, name, first, items)
        tally.hits["cleaned (NUL, lone surrogate)" if clean(NAMES[name]) != NAMES[name] else "kept as it is"] += 1
    except (BundleError, StoreError) as error:
        tally.lose(1, f"{field} {name}: {error}")
        return
    finally:
        engine.dispose()
    if is_printed:
        tally.hits["printed"] += 1
        _check_printed(setting, tally, path, field, name, clean(head.run_id))


def _with(field: str, text: str) -> tuple[RunHeader, list[Measurement]]:
    """A run that bears the text in one field, with a pass and a failure."""
    head = header("odd", minutes=60, commit=COMMIT_B)
    one, two = cell("bert"), cell("gpt2")
    as_field: dict[str, Any] = {field: text}
    if field in ("run_id", "branch", "commit", "label", "night"):
        head = replace(head, **as_field)
    elif field == "testbed":
        head = replace(head, testbed={"accelerator": text, "cores": 4})
    elif field == "title":
        head = replace(head, commit_title=text)
    elif field in ("suite", "model"):
        one, two = (_renamed(item, field, text + suffix) for item, suffix in ((one, ""), (two, "2")))
    elif field == "config":
        one, two = (replace(item, config=Config(template=text)) for item in (one, two))
    bad = failing(two)
    if field == "exception" and bad.failure:
        bad.failure.exception = bad.failure.message = text
        bad.log_tail = text
    return head, [passing(one), bad]


def _renamed(item: Cell, field: str, text: str) -> Cell:
    return replace(item, suite=text) if field == "suite" else replace(item, model=text)


def _text(head: RunHeader, items: list[Measurement]) -> str:
    first = {"record": "run", "format": 1, **head.to_json()}
    records: list[dict[str, Any]] = [first, *({"record": "planned", "cell": item.cell.to_json()} for item in items)]
    records += [{"record": "measurement", **item.to_json()} for item in items]
    return "".join(json.dumps(record) + "\n" for record in records)


def _check_stored(
    tally: Tally, engine: Engine, field: str, name: str, head: RunHeader, items: list[Measurement]
) -> None:
    runs = {run.run_id: run for run in list_runs(engine)}
    found = runs.get(clean(head.run_id))
    if found is None or len(runs) != 2:
        tally.lose(1, f"{field} {name}: runs {list(runs)}")
        return
    told = (found.branch, found.commit, found.label, found.commit_title, found.testbed["accelerator"])
    meant = (head.branch, head.commit, head.label, head.commit_title or "", str(head.testbed["accelerator"]))
    if told != tuple(map(clean, meant)) or found.night != clean(head.night or head.run_id):
        tally.err(f"{field} {name}: told {told}")
    for item in items:
        _check_measurement(tally, queries.measurement(engine, found.run_id, item.cell.cell_id), item, f"{field} {name}")


def _check_measurement(tally: Tally, found: queries.MeasurementInfo | None, item: Measurement, what: str) -> None:
    if found is None:
        tally.lose(1, f"{what}: a measurement")
        return
    if (found.cell.suite, found.cell.model, found.cell.config) != _names_of(item.cell):
        tally.err(f"{what}: told {found.cell}")
    meant = item.failure and (clean(item.failure.exception), clean(item.failure.message))
    if meant and (found.exception, found.message) != meant:
        tally.err(f"{what}: told {found.exception!r}")
    if found.metrics != item.metrics:
        tally.err(f"{what}: metrics changed")


def _names_of(item: Cell) -> tuple[str, str, str]:
    return clean(item.suite), clean(item.model), clean(item.config.name)


def _check_printed(setting: Setting, tally: Tally, path: Path, field: str, name: str, run_id: str) -> None:
    """As many lines as for plain names, without a character that steers the terminal; JSON gives the name back."""
    side = ("latest",) if run_id.startswith("-") else (run_id,)
    verbs: list[tuple[str, ...]] = [("runs",), ("compare", "latest~1", "latest"), ("runs", "--json")]
    verbs += [("compare", "latest~1", "latest", "--json")]
    if field == "run_id" and "\x00" not in run_id:
        verbs.append(("compare", "plain", *side))
    for words in verbs:
        done = cli(setting.folder, *words, "--db", str(path))
        _check_output(tally, done, f"{words[0]}{' --json' * ('--json' in words)} with {field} {name}")
        if words == ("runs",) and len(done.out.splitlines()) != (3 if field == "night" else 2):
            tally.err(f"runs with {field} {name}: {len(done.out.splitlines())} lines")
        if words == ("runs", "--json") and not any(row["run_id"] == run_id for row in json.loads(done.out or "[]")):
            tally.lose(1, f"runs --json with {field} {name}")


def _check_output(tally: Tally, done: Done, what: str) -> None:
    text = done.out + done.err
    steering = sorted({char for char in text if char != "\n" and unicodedata.category(char) in _STEERING})
    if done.is_unforeseen:
        tally.trace(f"{what}: {done.err}")
    elif not (done.is_one_line or done.code == 3):
        tally.err(f"{what}: exit code {done.code}, {done.err!r}")
    elif steering:
        tally.err(f"{what}: {steering!r} reach the terminal")
    elif "--json" not in what and not what.startswith("compare") and max(map(len, text.splitlines())) > _LONGEST_LINE:
        tally.err(f"{what}: a line of {max(map(len, text.splitlines()))} characters")


def _write_and_look_around(setting: Setting, tally: Tally, name: str) -> None:
    """A writer given such a run id writes in its folder or refuses in one line."""
    outside = setting.folder / f"outside{tally.tries}"
    inside = outside / "a" / "b" / "c" / "runs"
    inside.mkdir(parents=True, exist_ok=True)
    before = _files(outside, inside)
    tally.tries += 1
    try:
        writer = BundleWriter(inside, header(NAMES[name]), [cell()])
        writer.measurement(passing(cell()))
        path = writer.close("2026-08-01T00:00:00+00:00")
        tally.hits["run id: written in its folder"] += 1
        if path.parent != inside or path.resolve().parent != inside.resolve():
            tally.err(f"run id {name}: written to {path}")
    except BundleError as error:
        tally.hits["run id: refused in one line"] += 1
        if "\n" in str(error) or not str(error).isprintable():
            tally.err(f"run id {name}: refused in several lines")
    except (OSError, ValueError) as error:
        tally.trace(f"run id {name}: {type(error).__name__}: {error}")
    escaped = list(Path("/tmp").glob("chaos-escaped*"))  # noqa: S108
    if _files(outside, inside) != before or escaped:
        for path in escaped:
            path.unlink()
        tally.err(f"run id {name}: something was written outside of the folder")


def _files(outside: Path, inside: Path) -> set[Path]:
    return {path for path in outside.rglob("*") if inside not in path.parents}

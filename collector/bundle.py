"""Bundles: a run as append-only JSON lines, flushed line by line, and gzipped when the run is closed.

A bundle is the source of truth; a database is built from it and can be rebuilt at any time. Its records, one per line,
each a JSON object with a `record` field:

    run          first line: format, run_id, night, branch, commit, testbed, trigger, started_at, the request (`asked`)
    planned      one per cell that this run plans to measure; written together with the first line or not at all
    environment  environment_id and the whole fingerprint, once
    program      program_id and the effective options, once
    code         code_id and the graphs that it consists of (collector.code), unless another bundle of the folder has it
    text         text_id and the packed text of a kernel or a wrapper, unless another bundle of the folder has it
    measurement  one per cell measured; of several for one cell the last one counts
    end          the run was closed: finished_at, and usage: how it used its machine
    resumed      the run was resumed, whether it was open or closed: attempt, at

A file that was cut at any byte still gives the whole lines before the cut; `BundleContents.damage` lists what was lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from collector.code import Code, pack_text
from collector.masking import hidden_variables, mask, mask_fingerprint, mask_own, may_tell_secret, own_secrets
from collector.output_file import both_paths, create, find, pack, path_of, read_lines, take_up
from collector.usage_errors import BundleError
from collector.vocabulary import Cell, Measurement

FORMAT = 2
#: The trigger of a run that only generated code, without the device that the code is for: it has no latencies, and no night
#: is compared with it. The testbed, the environment and the details of its measurements describe the census under this key.
CENSUS = "census"
#: The trigger of a run that measures cells of a night again, to confirm a change. The run belongs to the night whose code it
#: measures, and that night keeps its place in the order of nights.
CONFIRM = "confirm"
#: The trigger of a run of `check`, which measures the cells of two sides in turn.
CHECK = "check"
#: In format 1 `amp` meant bfloat16 on every device, and float16 had a name of its own.
_DTYPES_OF_FORMAT_1 = {"amp": "amp_bfloat16", "amp_float16": "amp"}

#: torch's names of the compilation phases in which candidates are timed (`collector.measure.counters`).
TUNING_PHASES = ("autotune_while_compiling", "autotune_while_running")
#: Timing two candidates takes more seconds than this; looking up a choice that was timed earlier takes fewer.
_NO_TUNING_S = 0.005

#: The number of damage messages that are kept for a bundle; further ones are only counted.
_MOST_DAMAGE = 100

#: Exceptions of reading a line that is no record: no JSON, missing or odd fields, too deep nesting, 1e999 as a count.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The description of a run that is known before its first cell. Times are ISO 8601 in UTC.

    `asked` is the request, with all that `resume` needs. Runs of one plan on several GPUs share a `night`; a run with an
    empty `night` is a night of its own. `branch_start` is the commit at which the branch left the main line.
    """

    run_id: str
    branch: str
    commit: str
    testbed: dict[str, Any]
    started_at: str
    repo: str = "pytorch/pytorch"
    trigger: str = "adhoc"
    label: str = ""
    attempt: int = 1
    commit_date: str | None = None
    commit_title: str | None = None
    tool_version: str = ""
    asked: dict[str, Any] | None = None
    night: str = ""
    ci_url: str = ""
    branch_start: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are not None as a JSON object."""
        return {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name)) is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunHeader:
        """Build a header from the object that `to_json` made; ignore unknown fields, so that newer writers can add some."""
        known = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        if not known.get("night"):
            # The first bundles of runs on several GPUs name the night in `asked`.
            asked = known.get("asked")
            known["night"] = (isinstance(asked, Mapping) and asked.get("night")) or ""
        return cls(**known)


class BundleWriter:
    """The writer of `FOLDER/<run_id>.jsonl`, to which it appends records. It holds a lock; `close` gzips the file.

    The plan is written together with the first line: after a kill there is a run with its whole plan, or no run. A run id
    that cannot name a file raises `BundleError`.
    """

    def __init__(self, folder: Path, header: RunHeader, planned: Iterable[Cell] = ()) -> None:
        self.path = path_of(folder, header.run_id)
        folder.mkdir(parents=True, exist_ok=True)
        self._seen: set[str] = set()
        self._known = KnownCode(folder)
        first = {"record": "run", "format": FORMAT, **header.to_json()}
        plan = ({"record": "planned", "cell": cell.to_json()} for cell in planned)
        self._stream: IO[bytes] = create(self.path, map(_encode, [first, *plan]))

    @classmethod
    def reopen(cls, path: Path, at: str) -> tuple[BundleWriter, BundleContents]:
        """Reopen a run that is open, cut or closed; return the writer and the existing contents.

        Raises:
            BundleError: no such bundle, not a bundle, or another process writes it. The file is then unchanged.
        """
        plain, packed = both_paths(path)
        check_bundle(plain if plain.exists() else packed)
        writer = object.__new__(cls)
        writer.path, writer._stream = plain, take_up(plain)
        contents = read_bundle(plain)
        writer._seen = {*contents.environments, *contents.programs, *contents.codes, *contents.texts}
        writer._known = KnownCode(plain.parent)
        writer._write({"record": "resumed", "attempt": contents.attempt + 1, "at": at})
        return writer, contents

    def environment(self, environment_id: str, data: Mapping[str, Any]) -> None:
        """Write the fingerprint of an environment, without secrets, unless the bundle has this `environment_id` already."""
        self._once(
            environment_id, {"record": "environment", "environment_id": environment_id, "data": mask_fingerprint(data)}
        )

    def program(self, program_id: str, options: Mapping[str, Any]) -> None:
        """Write a program's effective options, unless the bundle has this `program_id` already."""
        self._once(program_id, {"record": "program", "program_id": program_id, "options": dict(options)})

    def code(self, code: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        """Write a cell's code and the texts that no bundle of the folder has; write nothing if a bundle has this code."""
        if (code_id := str(code["code_id"])) in self._known:
            return
        new = {
            text_id: {"record": "text", "text_id": text_id, "zlib": pack_text(text)}
            for text_id, text in texts.items()
            if text_id not in self._known
        }
        new[code_id] = {"record": "code", **code}
        self._write(*(record for key, record in new.items() if key not in self._seen))
        self._seen.update(new)
        self._known.add(new, self.path.stem)

    def measurement(self, measurement: Measurement) -> None:
        """Append one measurement; it is on disk when this method returns."""
        self._write({"record": "measurement", **measurement.to_json()})

    def close(self, finished_at: str, usage: Mapping[str, Any] | None = None) -> Path:
        """End the run: write the last record, compress, remove the plain file, and return the `.jsonl.gz` path.

        `usage` is how the run used its machine (`jobs.pool.usage`).
        """
        self._write({"record": "end", "finished_at": finished_at, **({"usage": dict(usage)} if usage else {})})
        final = pack(self.path)
        self._stream.close()  # releases the lock, only now that the plain file is gone
        return final

    def abandon(self) -> None:
        """Close the file of an interrupted run without an end record; it stays a plain `.jsonl`."""
        self._stream.close()

    def _once(self, key: str, record: dict[str, Any]) -> None:
        if key not in self._seen:
            self._seen.add(key)
            self._write(record)

    def _write(self, *records: dict[str, Any]) -> None:
        self._stream.writelines(map(_encode, records))
        self._stream.flush()
        os.fsync(self._stream.fileno())


class KnownCode:
    """The index of the generated code in a folder's bundles, so that a kernel which is equal every night is written once.

    The file `known_code` has a line for each code and text: its id and the run whose bundle has it. Where the file is lost,
    or a bundle was moved away, codes and texts are written again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "known_code"
        lines = self._file.read_text(errors="replace").splitlines() if self._file.exists() else []
        pairs = [(name, run) for name, _, run in (line.partition(" ") for line in lines)]
        self._bundles = {run: bundle for run in {run for _, run in pairs} if (bundle := self._bundle(run))}
        self._runs = {name: run for name, run in pairs if run in self._bundles}

    def __contains__(self, name: str) -> bool:
        return name in self._runs

    def bundle_of(self, name: str) -> Path | None:
        """Return the bundle that has the code or text with this id, or None."""
        return self._bundles.get(self._runs.get(name, ""))

    def add(self, names: Iterable[str], run_id: str) -> None:
        """Note that the bundle of this run has these codes and texts (ids) now."""
        if new := [name for name in names if name not in self._runs]:
            with self._file.open("a") as stream:
                stream.write("".join(f"{name} {run_id}\n" for name in new))
            self._runs.update(dict.fromkeys(new, run_id))

    def _bundle(self, run_id: str) -> Path | None:
        with suppress(BundleError):  # half a line names no run
            return find(self._folder, run_id)
        return None


def _encode(record: Mapping[str, Any]) -> bytes:
    line = json.dumps(record, separators=(",", ":"), allow_nan=False)
    own = own_secrets()
    if record["record"] != "text" and (own or may_tell_secret(line)):
        line = json.dumps(mask_own(record), separators=(",", ":"), allow_nan=False)
    return line.encode() + b"\n"


@dataclass(slots=True)
class BundleContents:
    """The contents of a bundle that was read. `finished_at` is None for a run that did not end; `damage` lists unreadable parts.

    `usage` is how the last attempt used its machine (`jobs.pool.usage`), empty if unknown. `attempt` is 1 at first and grows
    by one with every `resume`. `places` has the attempt and the line number of each measurement: of two measurements of one
    cell the one with the greater place counts. `secrets` names the lines with masked values: passwords and tokens, and
    variables that may be secret (`collector.masking`). `codes` are objects of `collector.code.Code.to_json`; `texts` are packed.
    """

    header: RunHeader
    planned: list[Cell] = field(default_factory=list)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    finished_at: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    damage: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)

    def latest(self) -> dict[str, Measurement]:
        """Return the last measurement of each cell, by `cell_id`."""
        return {measurement.cell.cell_id: measurement for measurement in self.measurements}


def read_bundle(path: Path) -> BundleContents:
    """Read a bundle, plain or compressed, closed or cut.

    Raises:
        BundleError: no such file, a larger one than any bundle, no readable first line, or a format newer than this program.
    """
    damage: list[str] = []
    lines = read_lines(path, damage)
    secrets: list[str] = []
    version, header = _header(path, next(lines, None), secrets)
    contents = BundleContents(header, attempt=header.attempt, damage=damage, secrets=secrets)
    for number, line in enumerate(lines, start=2):
        try:
            record = _masked(json.loads(line), line, number, contents.secrets)
            if version == 1:
                _rename_dtype(record)
            _take(contents, record, number)
        except _UNREADABLE as error:
            damage.append(f"line {number} is not a record ({type(error).__name__}: {str(error)[:200]})")
    contents.damage = first_damage(damage)
    return contents


def first_damage(damage: list[str]) -> list[str]:
    """Return the first messages of a damage list, and a last one with the count of the rest, so that a person can read it."""
    more = len(damage) - _MOST_DAMAGE
    return [*damage[:_MOST_DAMAGE], f"{more} more things are wrong with it"] if more > 0 else damage


def check_bundle(path: Path) -> RunHeader:
    """Return the header of a bundle; read its first line only. Raise `BundleError` as `read_bundle` does."""
    return _header(path, next(read_lines(path, []), None), [])[1]


def _rename_dtype(record: Mapping[str, Any]) -> None:
    cell = record.get("cell")
    if cell and str(cell["device"]).startswith("cuda"):
        cell["dtype"] = _DTYPES_OF_FORMAT_1.get(cell["dtype"], cell["dtype"])


def take_out_tuning(metrics: dict[str, float], details: dict[str, Any]) -> None:
    """Convert compile times from before `tuning_s` existed to today's definition, in place; leave newer ones as they are.

    A cell that did not tune has the same compile time by both definitions. For a cell that tuned, the compile time without
    tuning is unknown: its whole compile time becomes a detail. PyTorch's own results (`db.importing`), which have another
    definition, stay as they are.
    """
    is_ours = "compile_cpu_s" in details
    if not is_ours or "compile_cold_s" not in metrics or "tuning_s" in metrics or _is_taken_out(details):
        return
    phases = details.get("compile_phases_s")
    seconds = [phases.get(name, 0.0) for name in TUNING_PHASES] if isinstance(phases, Mapping) else []
    if sum(second for second in seconds if isinstance(second, int | float)) < _NO_TUNING_S:
        metrics["tuning_s"] = 0.0
        return
    details["compile_with_tuning_s"] = metrics.pop("compile_cold_s")
    if (count := metrics.pop("compile_instructions", None)) is not None:
        details["instructions_with_tuning"] = count


def _is_taken_out(details: Mapping[str, Any]) -> bool:
    """Return whether the tuning time is a detail already, as in a bundle that was read before and written again."""
    shared = details.get("shared_tuning")
    return isinstance(shared, dict) and "spent_s" in shared


def _take_out_spared_tuning(metrics: dict[str, float], details: dict[str, Any]) -> None:
    """Make `tuning_s` a detail if the cell took choices or candidates of other cells: tuning alone would have cost more."""
    shared = details.get("shared_tuning")
    if not isinstance(shared, dict) or "tuning_s" not in metrics:
        return
    if any(shared.get(found) for found in ("kernels_found", "operations_found", "candidates_of")):
        shared["spent_s"] = metrics.pop("tuning_s")


def _header(path: Path, line: bytes | None, secrets: list[str]) -> tuple[int, RunHeader]:
    try:
        record = _masked(json.loads(line or b""), line or b"", 1, secrets)
        if record["record"] != "run":
            raise ValueError("no run record")
        version, header = int(record["format"]), RunHeader.from_json(record)
    except _UNREADABLE as error:
        raise BundleError(
            f"{path} is not a bundle: its first line is no run record; see docs/architecture.md"
        ) from error
    if version > FORMAT:
        raise BundleError(
            f"{path} has bundle format {version}, this program reads up to {FORMAT}: update inductor-watch"
        )
    return version, header


def _masked(record: Any, line: bytes, number: int, secrets: list[str]) -> Any:
    """Return a record without secrets, which older versions wrote; add a message to `secrets` for each masked part."""
    if not isinstance(record, Mapping) or record.get("record") == "text":  # packed texts are not masked
        return record
    if record.get("record") == "environment" and isinstance(data := record.get("data"), Mapping):
        if hidden := hidden_variables(data):
            secrets.append(f"line {number} has the variables {', '.join(hidden)}")
        record = {**record, "data": mask_fingerprint(data)}
    if may_tell_secret(line.decode("utf-8", "replace")) and (masked := mask(record)) != record:
        secrets.append(f"line {number} has a password or a token")
        return masked
    return record


def _take(contents: BundleContents, record: Mapping[str, Any], number: int) -> None:
    match record["record"]:
        case "planned":
            contents.planned.append(Cell.from_json(record["cell"]))
        case "environment":
            contents.environments[record["environment_id"]] = dict(record["data"])
        case "program":
            contents.programs[record["program_id"]] = dict(record["options"])
        case "code":
            contents.codes[str(record["code_id"])] = Code.from_json(record).to_json()
        case "text":
            contents.texts[str(record["text_id"])] = (
                str(record["zlib"]) if "zlib" in record else pack_text(record["text"])
            )
        case "measurement":
            measurement = Measurement.from_json(record)
            take_out_tuning(measurement.metrics, measurement.details)
            _take_out_spared_tuning(measurement.metrics, measurement.details)
            contents.measurements.append(measurement)
            contents.places.append((contents.attempt, number))
        case "end":
            contents.finished_at, contents.usage = str(record["finished_at"]), dict(record.get("usage") or {})
        case "resumed":
            contents.attempt, contents.finished_at = int(record["attempt"]), None
        case other:
            raise ValueError(f"unknown record {other!r}")

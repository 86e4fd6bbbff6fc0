"""An import: files to rows, rows to runs, runs to bundles, bundles into the database."""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine

from collector.bundle import BundleContents, BundleWriter, RunHeader
from collector.code import Code, unpack_text
from collector.output_file import both_paths, write_output
from collector.usage_errors import BundleError, ExpectedError
from collector.vocabulary import Measurement, canonical_json, short_hash
from db.commits.commit_history import LandedCommit
from db.importing import result_files
from db.importing.merging import join_pairs, merge
from db.importing.pytorch_names import Given, Identity, identify
from db.importing.result_files import read_records, read_table
from db.importing.result_rows import ImportingError, Row, Source, Target, Uploader, find_files, read_source
from db.ingest import IngestReport, ingest_bundle
from db.store_errors import counted, in_words, one_line
from db.stored_values import from_epoch, to_epoch

_DEFAULT_REPO = "pytorch/pytorch"


class Clone(Hashable, Protocol):
    """A git repository to look commits up in, such as `jobs.git_log.Repository`."""

    def sha_of(self, ref: str) -> str:
        """Return the sha of the commit that a ref, tag or sha means. Raises `ExpectedError` if there is none."""

    def branch_of(self, ref: str) -> str:
        """Return the branch that a ref names, else the one that is checked out; empty if there is none."""

    def commits(self, places: Iterable[tuple[int, str]]) -> Iterator[LandedCommit]:
        """Yield the facts of each commit (position and sha)."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The caller's values for a run; `git` is a repository that supplies missing ones."""

    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    date: str | None = None
    git: Clone | None = None
    label: str = ""
    tool_version: str = ""

    def look_up(self, commit: str | None) -> LandedCommit | None:
        """Return the repository's entry for the caller's commit, the given one, or HEAD; None without a repository.

        Raises `ExpectedError` where the caller's commit is not in it. A given commit may be unknown: the result is then None.
        """
        if self.git is None:
            return None
        try:
            return _look_up(self.git, self.commit or commit or "HEAD")
        except ExpectedError:
            if self.commit or not commit:
                raise
            return None

    @property
    def epoch(self) -> float | None:
        """The caller's date in seconds since 1970. Raises `ImportingError` if it is none."""
        if self.date is None:
            return None
        try:
            return to_epoch(self.date)
        except (ValueError, OverflowError) as error:
            raise ImportingError(f"--date {one_line(self.date)!r} is no date: write it as 2026-08-01T02:00") from error


#: The trigger of imported runs; the cost model leaves such runs out.
TRIGGER = "import"


def settle(uploader: Uploader, asked: Provenance) -> RunHeader | str:
    """Return repository, branch, commit and date of rows as the header of a run, or a text that says what is missing.

    The header has no run id and no testbed yet.
    """
    commit, branch, date = (
        asked.commit or uploader.commit,
        asked.branch or uploader.branch,
        asked.epoch or uploader.timestamp,
    )
    here = asked.look_up(uploader.commit)
    if asked.git and here:
        commit, branch = here.sha, branch or (asked.git.branch_of("HEAD") if not uploader.commit else None)
        date = here.committed_at if date is None else date
    if missing := [
        word for word, value in (("commit", commit), ("branch", branch), ("date", date)) if value in (None, "")
    ]:
        options = in_words([f"--{word}" for word in missing], "and")
        return f"no {in_words(missing, 'or')}: pass {options}, or --git PATH"
    assert commit and branch and date is not None  # noqa: S101 - all three were just looked at
    try:
        started_at = from_epoch(date).isoformat()
        to_epoch(started_at)
    except (ValueError, OverflowError, OSError):
        return f"{date!r} is no date: pass --date"
    return RunHeader(
        run_id="",
        branch=branch,
        commit=commit,
        testbed={},
        started_at=started_at,
        repo=asked.repo or uploader.repo or _DEFAULT_REPO,
        trigger=TRIGGER,
        label=asked.label,
        commit_date=from_epoch(here.author_date).isoformat() if here and here.author_date is not None else None,
        commit_title=here.subject if here else None,
    )


@cache  # every row of a file asks
def _look_up(clone: Clone, ref: str) -> LandedCommit:
    return next(clone.commits([(0, clone.sha_of(ref))]))


@dataclass(slots=True)
class _Group:
    """The rows of one run."""

    header: RunHeader
    rows: list[tuple[Identity, Row]]


def runs_of(rows: Sequence[Row], asked: Provenance, given: Given, problems: list[str]) -> list[BundleContents]:
    """Return the runs of these rows, in the order of the rows.

    A run has all that one workflow measured of one commit on one kind of machine. Rows without a known cell or commit are left
    out, with a line per file in `problems`.
    """
    groups: dict[str, _Group] = {}
    lacking: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        identity = identify(row, given)
        origin = settle(row.uploader, asked)
        for lack in (identity, origin):
            if isinstance(lack, str):
                lacking[row.source.name, lack].append(row.line)
        if isinstance(identity, str) or isinstance(origin, str):
            continue
        header = replace(origin, testbed=_testbed(row, identity))
        key = canonical_json([header.repo, header.branch, header.commit, row.uploader.workflow_id, header.testbed])
        groups.setdefault(key, _Group(header, [])).rows.append((identity, row))
    for (name, lack), lines in lacking.items():
        problems.append(f"{name}: {counted(len(lines), 'row')} left out (line {lines[0]}): {lack}")
    return [_run(group, asked, problems) for group in groups.values()]


def _run(group: _Group, asked: Provenance, problems: list[str]) -> BundleContents:
    # Later attempts of a workflow come last, so that they count.
    ordered = sorted(group.rows, key=lambda pair: pair[1].uploader.run_attempt or 1)
    uploaders = [row.uploader for _, row in ordered]
    moments = [item.timestamp for item in uploaders if item.timestamp is not None] if asked.date is None else []
    # Without a date in any record, the date of the caller or of the repository.
    times = [from_epoch(moment).isoformat() for moment in (min(moments), max(moments))] if moments else []
    started_at, finished_at = times or (group.header.started_at, group.header.started_at)
    measurements, environments = merge(ordered, started_at, asked.date is not None, problems)
    attempt = max((item.run_attempt or 1 for item in uploaders), default=1)
    workflow = next((item.workflow_id for item in uploaders if item.workflow_id), "")
    ci_url = f"https://github.com/{group.header.repo}/actions/runs/{workflow}" if workflow.isdigit() else ""
    header = replace(group.header, started_at=started_at, attempt=attempt, ci_url=ci_url)
    content = [header.to_json(), sorted(canonical_json(item.to_json()) for item in measurements), environments]
    # A hash of the content alone: the same files give the same run, and any difference gives another one.
    run_id = f"import-{started_at[:10].replace('-', '')}-{short_hash(content)}"
    return BundleContents(
        replace(header, run_id=run_id, tool_version=asked.tool_version),
        list(dict.fromkeys(item.cell for item in measurements)),
        environments,
        measurements=measurements,
        finished_at=finished_at,
        attempt=attempt,
    )


def _testbed(row: Row, identity: Identity) -> dict[str, Any]:
    """Return the testbed, as far as it is known; another harness is another testbed."""
    harness = "GraphNet" if row.target is Target.GRAPHNET else "benchmarks/dynamo"
    if row.benchmark not in (None, "TorchInductor"):
        harness = str(row.benchmark)
    testbed: dict[str, Any] = {"harness": harness, "device": identity.device, "accelerator": identity.accelerator}
    runners = row.extra.get("runners")
    runner = runners[0] if isinstance(runners, list) and runners and isinstance(runners[0], dict) else {}
    words = {"type": "runner", "gpu_info": "gpu", "gpu_count": "gpu_count", "cpu_info": "cpu", "cpu_count": "cores"}
    # Without the runner's own name, since any runner of a kind may take a shard.
    return testbed | {ours: runner[theirs] for theirs, ours in words.items() if runner.get(theirs) not in (None, "", 0)}


def pack_run(contents: BundleContents, folder: Path) -> Path:
    """Write a run as a bundle into a folder and return its path: closed if the run has ended, else open.

    Records have the order of a measured run: the plan, then each measurement after its environment, program and code.
    """
    writer = BundleWriter(folder, contents.header, contents.planned)
    for environment, data in contents.environments.items():
        writer.environment(environment, data)
    for program, options in contents.programs.items():
        writer.program(program, options)
    for code in contents.codes.values():
        own = Code.from_json(code).text_ids & contents.texts.keys()
        texts = {text_id: unpack_text(contents.texts[text_id]) for text_id in own}
        writer.code(code, texts)
    for measurement in contents.measurements:
        writer.measurement(_fit_for_json(measurement))
    if contents.finished_at is not None:
        return writer.close(contents.finished_at, contents.usage)
    writer.abandon()
    return writer.path


def _fit_for_json(measurement: Measurement) -> Measurement:
    """Return a measurement whose samples that are not finite are texts, which a bundle's reader accepts."""
    samples: dict[str, Any] = {
        name: [value if math.isfinite(value) else str(value) for value in values]
        for name, values in measurement.samples.items()
    }
    return replace(measurement, samples=samples)


@dataclass(slots=True)
class FileReport:
    """One file: the number of its rows and values, or why nothing could be read."""

    file: str
    rows: int = 0
    values: int = 0
    problem: str = ""


@dataclass(slots=True)
class ImportedRun:
    """One run: its bundle, whether that is new in its folder, and the report of storing it (None without a database)."""

    run_id: str
    bundle: str
    is_new: bool
    branch: str
    commit: str
    measurements: int
    statuses: dict[str, int]
    stored: IngestReport | None = None


@dataclass(slots=True)
class ImportReport:
    """The result of an import. `problems` has a text for each damaged row or line; the others are imported."""

    files: list[FileReport] = field(default_factory=list)
    runs: list[ImportedRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing at all could be read."""
        return not self.runs


def import_files(places: Iterable[Path], asked: Provenance, given: Given, folder: Path) -> ImportReport:
    """Read files, and write a bundle for every run in them into a folder. `store` puts the bundles into a database.

    Raises `ImportingError` where the caller's date or repository cannot be used.
    """
    report = ImportReport()
    _ = asked.epoch  # a date that is none is refused before anything is read
    rows: list[Row] = []
    seen: set[tuple[str, int]] = set()
    for path in find_files(places):
        file = FileReport(one_line(str(path), 200))
        report.files.append(file)
        try:
            source = read_source(path)
            mark = (source.stem, hash(source.text))
            if mark in seen:
                raise ImportingError(f"{one_line(str(path), 200)}: read already, under the same name: left out")
            seen.add(mark)
            of_file = _read(source, report.problems)
        except ImportingError as error:
            file.problem = str(error)
            continue
        rows += of_file
        file.rows = len(of_file)
        file.values = sum(len(values) for row in of_file for values in row.values.values())
        if not of_file:
            file.problem = f"{source.name} holds no row that could be read"
    report.runs += [_put(run, folder) for run in runs_of(join_pairs(rows), asked, given, report.problems)]
    return report


def store(engine: Engine, report: ImportReport, not_after: float = math.inf) -> None:
    """Store the bundles of an import in a database; each is stored whole or not at all.

    A run that cannot be stored, or starts after `not_after` (as in `ingest_bundle`), is a problem of the report. Raises
    `StoreError` where the database cannot be written.
    """
    for run in report.runs:
        try:
            run.stored = ingest_bundle(engine, run.bundle, not_after=not_after)
        except BundleError as error:
            report.problems.append(str(error))
            continue
        report.problems += [f"{Path(run.bundle).name}: {line}" for line in run.stored.damage]


def _read(source: Source, problems: list[str]) -> list[Row]:
    start = source.text.lstrip("\ufeff \t\r\n")[:1]
    is_log = result_files.is_log(source.text)
    is_list = start == "[" and not (is_log and not source.name.endswith(".json"))
    # A file of records that lost its beginning still has whole lines.
    if start == "{" or is_list or (not is_log and re.search(r'^\{"', source.text, re.MULTILINE)):
        return read_records(source, problems)
    return result_files.read_log(source, problems) if is_log else read_table(source, problems)


def _put(contents: BundleContents, folder: Path) -> ImportedRun:
    """Put the run's bundle into the folder, whole or not at all.

    An existing bundle of the run is kept: a name stands for one run, and a measured bundle holds more than a copy.
    """
    header = contents.header
    path = next((path for path in both_paths(folder / f"{header.run_id}.jsonl") if path.exists()), None)
    is_new = path is None
    if path is None:
        with tempfile.TemporaryDirectory(prefix="inductor-watch-") as workshop:
            made = pack_run(contents, Path(workshop))
            path = folder / made.name
            folder.mkdir(parents=True, exist_ok=True)
            write_output(path, made.read_bytes())
    counts = Counter(item.status.value for item in contents.latest().values())
    where = (one_line(header.branch), one_line(header.commit))
    return ImportedRun(header.run_id, str(path), is_new, *where, len(contents.measurements), dict(counts))

"""The measurements of builds and commits in a bisection, and the judges that tell good from bad.

Builds are measured in environments of their own, commits with an overlay or after a command has prepared them. A judge decides
by the level of a metric, by whether the cell passes, or by the generated code. For the code alone nothing is measured: the
census generates it.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from packaging.version import Version

from analysis.compare.adjustment import CONTROL, EAGER_CHANGED, WAITS_FOR_HOST
from analysis.compare.cell_verdicts import LEAK
from analysis.history.bisection import Finding, Runs, Word, compare_ends, find_side
from collector.census.gpu_models import CensusError
from collector.metrics import METRICS, MIN_EFFECT
from collector.vocabulary import Cell, Status
from jobs.builds.build_environments import Environments, list_builds
from jobs.builds.build_options import BuildError, BuildOptions, SourceOptions, parse_build
from jobs.builds.overlay import acting, differing
from jobs.census.census_commits import take_commit
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusMemory
from jobs.git_log import Repository
from jobs.output.terminal import one_line
from jobs.pool.child import ChildError, Request, bundle_files, measure_in
from jobs.requested_options import RequestedOptions, RunNames

#: Metrics that are counts, or can be 0: their values are compared as they are. All other metrics are compared by their ln.
COUNTS = frozenset(metric.name for metric in METRICS.values() if metric.is_count) | {LEAK}
#: The smallest relative change of a metric without one in `MIN_EFFECT`, and the smallest change of a count, half of one.
_SMALLEST, _HALF = 0.02, 0.5

#: Metrics that a cell has when it is compiled, without being timed or checked.
OF_COMPILING = (
    *("compile_cold_s", "compile_instructions", "graphs", "graph_breaks"),
    *("cudagraph_partitions", "kernels_generated", "kernels_extern"),
)
#: Metrics that are equal for two builds that generate the same code and run it in the same way.
OF_RUNNING = ("compiled_ms", "compiled_kernel_ms", "speedup", "device_speedup")

#: The metric that is the control of the compiled latency.
_EAGER = CONTROL[WAITS_FOR_HOST]


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of one build; `eager` is the eager latency of the same process, `eager_kernel` its device time, in ms, or None.

    `code` is the `code_id` of the generated code, if that is known.
    """

    status: str
    value: float | None
    commit: str
    bundle: str
    eager: float | None = None
    eager_kernel: float | None = None
    code: str | None = None

    def __str__(self) -> str:
        """Return status and value, or the code alone if nothing was measured."""
        if self.status == Status.NOT_CHECKED.value and self.code:
            return f"code {self.code}"
        return self.status if self.value is None else f"{self.status} {self.value:.4g}"


#: The runs of all builds that are not being judged, by name: they show the noise.
Others = Mapping[str, Sequence[Reading]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision in words and figures: `text` for a person, `figures` for the log."""

    word: Word
    text: str
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Control:
    """The control of a metric: whether it is the eager latency, and the text about that; empty for a metric without one."""

    is_used: bool = False
    text: str = ""

    def values(self, runs: Sequence[Reading]) -> list[float]:
        """Return the ln of each run's eager latency; 0 if it is not the control."""
        return [math.log(run.eager) if self.is_used and run.eager else 0.0 for run in runs]

    def describe(self, finding: Finding) -> str:
        """Return the text about the control that follows the figures of a finding."""
        moved = f", which moved by {math.expm1(finding.moved):+.1%}" if self.is_used else ""
        return f", {self.text}{moved}" if self.text else ""


def _control(groups: Sequence[Sequence[Reading]], others: Iterable[Sequence[Reading]]) -> _Control:
    """Return the eager latency as control, unless a run has none or its device time shows that the eager programs differ."""
    if not all(run.eager for runs in (*groups, *others) for run in runs):
        return _Control(text=f"as measured: a run has no {_EAGER}")
    device = [[math.log(run.eager_kernel) for run in runs if run.eager_kernel] for runs in groups]
    if all(device):
        means = [fmean(values) for values in device]
        if max(means) - min(means) >= math.log1p(EAGER_CHANGED):
            return _Control(text="as measured: the eager program changed")
    return _Control(True, f"beside {_EAGER}")


@dataclass(frozen=True, slots=True)
class MetricJudge:
    """A judge by a metric's level; `level` is the p that decides, `smallest` the least relative change (or count) that matters.

    The compiled latency is adjusted by the eager latency of the same process, as in `compare`: if both are slower, the host is.
    """

    metric: str
    level: float
    smallest: float | None = None

    @property
    def is_count(self) -> bool:
        """Return whether values are compared as they are."""
        return self.metric in COUNTS

    def unfit(self, runs: Sequence[Reading]) -> str | None:
        """Return why these runs cannot be judged: one failed or did not measure the metric. None if they can."""
        for run in runs:
            if run.status != Status.PASS.value:
                return (
                    f"its cell ends in {run.status}, without {self.metric}: use --metric status to find what broke it"
                )
            if run.value is None or not math.isfinite(run.value) or (not self.is_count and run.value <= 0):
                return f"its run has no {self.metric}"
        return None

    def ends(self, good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """Judge whether the levels of the two ends differ by what matters."""
        rows, between, control = self._rows([good, bad], others)
        finding = compare_ends(rows[0], rows[1], self.level, self._least, between)
        text = f"{self._spell(finding)}, p {finding.p:.2g}{control.describe(finding)}"
        return Judged(finding.word, text, self._figures(finding, [*good, *bad], control))

    def side(self, runs: Sequence[Reading], good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """Judge on which side of the middle between the ends the level of these runs is."""
        rows, between, control = self._rows([runs, good, bad], others)
        finding = find_side(rows[0], rows[1], rows[2], self.level, between)
        level, start, end = (float(np.mean(some, axis=0) @ (1.0, -finding.slope)) for some in rows)
        part = (level - start) / (end - start) if end != start else math.nan
        text = (
            f"{self.shown(runs)}, {part:.0%} of the way from good to bad, p {finding.p:.2g}{control.describe(finding)}"
        )
        return Judged(finding.word, text, self._figures(finding, runs, control))

    def shown(self, runs: Sequence[Reading]) -> str:
        """Return the mean of some runs and their number, in words."""
        values = self._values(runs)
        mean = fmean(values) if self.is_count else math.exp(fmean(values))
        unit = METRICS[self.metric].unit
        return f"{mean:.4g} {unit or self.metric} ({len(values)} runs)"

    @property
    def _least(self) -> float:
        if self.is_count:
            return _HALF if self.smallest is None else self.smallest
        return math.log1p(MIN_EFFECT.get(self.metric, _SMALLEST) if self.smallest is None else self.smallest)

    def _values(self, runs: Sequence[Reading]) -> list[float]:
        values = [run.value for run in runs if run.value is not None]
        return values if self.is_count else [math.log(value) for value in values]

    def _rows(
        self, groups: Sequence[Sequence[Reading]], others: Others
    ) -> tuple[list[Runs], dict[str, Runs], _Control]:
        """Return the groups and the other runs that can be judged, as pairs of value and control, and the control itself."""
        fit = {name: runs for name, runs in others.items() if runs and not self.unfit(runs)}
        control = _Control() if self.metric != WAITS_FOR_HOST else _control(groups, fit.values())

        def rows(runs: Sequence[Reading]) -> Runs:
            return list(zip(self._values(runs), control.values(runs), strict=True))

        return [rows(runs) for runs in groups], {name: rows(runs) for name, runs in fit.items()}, control

    def _spell(self, finding: Finding) -> str:
        if self.is_count:
            return f"{finding.change:+.3g} ({finding.low:+.3g} to {finding.high:+.3g})"
        shares = [math.expm1(value) for value in (finding.change, finding.low, finding.high)]
        return "{:+.1%} ({:+.1%} to {:+.1%})".format(*shares)

    def _figures(self, finding: Finding, runs: Sequence[Reading], control: _Control) -> dict[str, Any]:
        numbers = {name: value for name, value in asdict(finding).items() if name not in ("word", "slope", "moved")}
        if control.is_used:
            numbers |= {"slope": finding.slope, "eager_change": finding.moved}
        plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        judged = {"judged": f"{self.metric} {control.text}"} if control.text else {}
        scale = "count" if self.is_count else "ln"
        return {"scale": scale, **judged, **plain, "values": [run.value for run in runs]}


@dataclass(frozen=True, slots=True)
class StatusJudge:
    """A judge by whether the cell passes: good in every run, bad in none. If runs disagree, the word is `OPEN`."""

    def unfit(self, runs: Sequence[Reading]) -> str | None:
        """Return why these runs cannot be judged: their cell was not tried. None if they can."""
        untried = {run.status for run in runs} & {Status.SKIPPED.value, Status.UNAVAILABLE.value}
        return f"its cell is {untried.pop()} there" if untried else None

    def ends(self, good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """Judge the ends: `DIFFERENT` if every run of the good end passes and no run of the bad end."""
        words = self._word(good), self._word(bad)
        same = Word.OPEN if Word.OPEN in words else Word.SAME
        word = Word.DIFFERENT if words == (Word.GOOD, Word.BAD) else same
        return Judged(word, f"{self.shown(good)} against {self.shown(bad)}", self._figures([*good, *bad]))

    def side(self, runs: Sequence[Reading], good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """Judge these runs: the side on which all of them agree, else `OPEN`."""
        return Judged(self._word(runs), self.shown(runs), self._figures(runs))

    def shown(self, runs: Sequence[Reading]) -> str:
        """Return the number of runs with each status, in words."""
        counts = Counter(run.status for run in runs)
        return ", ".join(f"{number} x {status}" for status, number in counts.items())

    def _word(self, runs: Sequence[Reading]) -> Word:
        passed = {run.status == Status.PASS.value for run in runs}
        return Word.OPEN if len(passed) != 1 else Word.GOOD if passed.pop() else Word.BAD

    def _figures(self, runs: Sequence[Reading]) -> dict[str, Any]:
        return {"statuses": [run.status for run in runs]}


@dataclass(frozen=True, slots=True)
class CodeJudge:
    """A judge by the generated code, which has no noise: code that differs from the good end's is bad."""

    def unfit(self, runs: Sequence[Reading]) -> str | None:
        """Return why these runs cannot be judged: one has no code. None if they can."""
        return next((f"its cell is {run.status} there" for run in runs if not run.code), None)

    def ends(self, good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """Judge whether the code of the two ends differs."""
        word = Word.SAME if self._code(good) == self._code(bad) else Word.DIFFERENT
        return Judged(word, f"{self.shown(good)} against {self.shown(bad)}", self._figures([*good, *bad]))

    def side(self, runs: Sequence[Reading], good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """Judge a commit: good if it has the code of the good end, else bad."""
        word = Word.GOOD if self._code(runs) == self._code(good) else Word.BAD
        return Judged(word, self.shown(runs), self._figures(runs))

    def shown(self, runs: Sequence[Reading]) -> str:
        """Return the code of a commit in words."""
        return f"code {self._code(runs)}"

    def _code(self, runs: Sequence[Reading]) -> str | None:
        return runs[-1].code

    def _figures(self, runs: Sequence[Reading]) -> dict[str, Any]:
        return {"codes": [run.code for run in runs]}


#: A judge decides from runs whether the ends differ (`ends`), on which side of the change a build is (`side`), and why some
#: runs cannot be judged at all (`unfit`, None if they can); `shown` describes runs in a few words.
Judge = MetricJudge | StatusJudge | CodeJudge


#: The environment variable in which the command finds the commit; it is never written into the command.
COMMIT_VARIABLE = "INDUCTOR_WATCH_COMMIT"


def builds_between(good: str, bad: str, named: Sequence[str], options: BuildOptions) -> list[str]:
    """Return the versions from good to bad: the named versions, else the versions in the index.

    Raises:
        BuildError: good is not older than bad, or the index cannot be read.
    """
    first, last = parse_build(good), parse_build(bad)
    if first >= last:
        raise BuildError(
            f"--good {first} is not older than --bad {last}: --good is the older end, even if it is the slower one"
        )
    candidates = [parse_build(text) for text in named] if named else _offered(options, (first, last))
    inside = {build for build in candidates if first < build < last}
    return [str(build) for build in sorted({first, *inside, last})]


def _offered(options: BuildOptions, ends: tuple[Version, Version]) -> list[Version]:
    """Return the builds in the index, with pre-releases only if an end is one, and only one of 2.13.0 and 2.13.0+cpu."""
    by_public: dict[str, Version] = {}
    for build in sorted(map(Version, list_builds(options.words()).versions)):
        by_public.setdefault(build.public, build)  # the one without a local version comes first
    with_nightlies = any(end.is_prerelease for end in ends)
    others = by_public.keys() - {end.public for end in ends}
    return [
        build for public, build in by_public.items() if public in others and (with_nightlies or not build.is_prerelease)
    ]


def commits_between(folder: Path, good: str, bad: str) -> list[str]:
    """Return the shas from good to bad, along the first parents of bad. Raises `GitError` if good did not land before bad."""
    repository = Repository(folder)
    first, last = repository.sha_of(good), repository.sha_of(bad)
    return [first, *repository.landed(first, last)]


def compiled_only(request: Request) -> Request:
    """Return the request without timing and correctness check."""
    settings = replace(request.requested.settings, code_only=True)
    return replace(request, requested=replace(request.requested, settings=settings))


@dataclass(frozen=True, slots=True)
class TorchBuilds:
    """A measurer of torch builds, each in its environment; the bundles go below `folder`."""

    environments: Environments
    request: Request
    metric: str
    folder: Path

    def measure(self, name: str, number: int) -> Reading:
        """Measure run `number` of a build. Raises `ChildError` if it cannot be installed or measured."""
        build = parse_build(name)
        environment = self.environments.ready(build)
        bundles = self.folder / f"torch-{build}" / str(number)
        return read_run(environment.python, self.request, bundles, self.metric, self.folder)


@dataclass(frozen=True, slots=True)
class Overlays:
    """A measurer of commits by their Python files over the installed torch; the bundles go below `folder`."""

    repository: Path
    options: SourceOptions
    request: Request
    metric: str
    folder: Path
    _requests: dict[str, Request] = field(default_factory=dict, init=False)

    def measure(self, name: str, number: int) -> Reading:
        """Measure run `number` of a commit. Raises `ChildError` if it needs a build or cannot be measured."""
        return self._read(name, self._request(name), str(number))

    def same_as(self, name: str, codes: Mapping[str, str | None]) -> str | None:
        """Return a measured commit that behaves as this commit, or None. `codes` has the code of each measured commit.

        It has the same Python files of torch, or it generates the same code and all files that differ act while compiling only.
        To find that out, this commit is compiled once.
        """
        own = self._overlay(name)
        if (same := next((other for other in codes if self._overlay(other) == own), None)) is not None:
            return same
        # If both ends generate the same code, the code says nothing about the side.
        if self.metric not in OF_RUNNING or len(set(codes.values())) < 2:
            return None
        overlays = {other: self._overlay(other) for other, code in codes.items() if code}
        like = [other for other, overlay in overlays.items() if not acting(overlay, own, differing(overlay, own))]
        if not like:
            return None
        code = self._read(name, compiled_only(self._request(name)), "code").code
        return next((other for other in like if codes[other] == code), None)

    def _request(self, name: str) -> Request:
        if name not in self._requests:
            source = replace(self.options, source=f"{self.repository}@{name}")
            names, requested = source.applied(self.request.names, self.request.requested)
            self._requests[name] = replace(self.request, names=names, requested=requested)
        return self._requests[name]

    def _overlay(self, name: str) -> Path:
        return Path(self._request(name).requested.execution.overlay)

    def _read(self, name: str, request: Request, bundles: str) -> Reading:
        return read_run(Path(sys.executable), request, self.folder / name[:12] / bundles, self.metric, self.folder)


@dataclass(slots=True)
class Checkouts:
    """A measurer of commits, each after a command has prepared it; the bundles go below `folder`."""

    repository: Path
    command: str
    python: Path
    request: Request
    metric: str
    folder: Path
    _prepared: str = field(default="", init=False)

    def measure(self, name: str, number: int) -> Reading:
        """Measure run `number` of a commit; prepare it first unless it was prepared last. Raises `ChildError` on failure."""
        if self._prepared != name:
            self._prepared = ""
            self._prepare(name)
            self._prepared = name
        bundles = self.folder / name[:12] / str(number)
        return read_run(self.python, self.request.called(commit=name), bundles, self.metric, self.folder)

    def _prepare(self, sha: str) -> None:
        log = self.folder / "prepare.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            stream.write(f"== {sha}\n".encode())
            stream.flush()
            start = stream.tell()
            done = subprocess.run(
                ["/bin/sh", "-c", self.command],
                cwd=self.repository,
                env={**os.environ, COMMIT_VARIABLE: sha},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            output = log.read_bytes()[start:].decode("utf-8", "replace").strip().splitlines()
            last = one_line(output[-1], 200) if output else "no output"
            raise BuildError(f"the --run command ended with exit code {done.returncode} ({last}); see {log}")


@dataclass(frozen=True, slots=True)
class CommitCode:
    """A generator of a cell's code at commits of a repository, without a GPU; the bundles go below `folder`."""

    repository: Path
    options: SourceOptions
    cell: Cell
    place: CensusPlace
    asked: tuple[RunNames, RequestedOptions]
    memory: CensusMemory
    folder: Path

    def measure(self, name: str, number: int) -> Reading:
        """Return the code at a commit. Raises `ChildError` if the commit needs a build or its code is not known."""
        source = replace(self.options, source=f"{self.repository}@{name}")
        folder = self.folder / name[:12]
        try:
            found, bundle, _ = take_commit(source, [self.cell], self.place, self.asked, self.memory.answers, folder)
        except CensusError as error:
            raise ChildError(f"{name[:12]}: {error}") from error
        one = found[self.cell.cell_id]
        if not one.is_known:
            raise ChildError(f"{name[:12]}: no code of {self.cell}: {one.describe()}")
        path = str(bundle.relative_to(self.folder)) if bundle else ""
        return Reading(one.measurement.status.value, None, name, path, code=one.code_id)


def bisected_cell(cells: Sequence[Cell]) -> Cell:
    """Return the only planned cell. Raises `BuildError` if there is not exactly one."""
    if len(cells) != 1:
        named = ", ".join(sorted({f"{cell.suite}/{cell.model} {cell.config.name}" for cell in cells})[:4])
        raise BuildError(
            f"bisect takes one cell, and the options select {len(cells)} ({named}): narrow --model, --suite or --config"
        )
    return cells[0]


def read_run(python: Path, request: Request, bundles: Path, metric: str, folder: Path) -> Reading:
    """Measure one cell and read its outcome; a run that is complete in `bundles` is read again, not measured.

    Raises:
        ChildError: nothing could be measured, or the request has several cells.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = measure_in(python, request, bundles, folder / "measuring.log")[0]
    bisected_cell(contents.planned)
    (measurement,) = contents.latest().values()
    bundle = bundle_files(bundles)[0].relative_to(folder)
    value, eager, eager_kernel = (measurement.metrics.get(name) for name in (metric, "eager_ms", "eager_kernel_ms"))
    commit, code = contents.header.commit, measurement.code_id
    return Reading(measurement.status.value, value, commit, str(bundle), eager, eager_kernel, code)

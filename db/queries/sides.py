"""The sides of a comparison: the text that names one, the runs it stands for, and the earlier nights it is compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, exists, func, select, union

from collector.bundle import CHECK, CONFIRM
from db.commits.commit_history import measured_tags, tagged
from db.connecting import Source, connected
from db.nights import NightInfo, RunInfo, device_name, find_runs, is_measured, list_nights, newest_nights
from db.schema import Commit, Environment, Planned, Run, Tag, Testbed, measurements
from db.store_errors import NoBaseError, SideError, counted, nearest, one_line
from db.stored_values import clean

#: Triggers of runs that a person or a search starts. Such a run is often of a few cells, under a load or a commit of its own.
AD_HOC = frozenset({"adhoc", "again", "backfill", "bisect", CHECK})
#: The ends of the names of a check's two nights.
_BASE, _NEW = "-base", "-new"
#: An earlier night is a base if it expects at least this share of the cells.
ENOUGH = 0.5


def base_nights(
    source: Source, runs: Sequence[RunInfo], nights: Sequence[NightInfo] | None = None
) -> Iterator[NightInfo]:
    """Yield the earlier nights that `runs` can be compared with, nights of the same branch first, each group newest first.

    The first one of a check's new side is its base side, which was measured with it.
    A base measured something before `runs`, on a testbed of `runs`, and expects there (by its plan, or by measuring it
    without one) at least half of the cells that `runs` expect. A night started ad hoc is a base of ad hoc runs only.
    `nights` are all nights of the store, if they were read already.
    """
    with connected(source) as conn:
        ours = {run.key for run in runs}
        testbeds, branches = {run.testbed_id for run in runs}, {(run.repo, run.branch) for run in runs}
        own = [run for run in runs if run.trigger != CONFIRM] or runs
        is_ad_hoc = {run.trigger for run in own} <= AD_HOC
        newest = {run.night: (run.started_at, run.night) for run in sorted(own, key=lambda run: run.started_at)}
        before = min(newest.values())
        own_base = {
            run.night.removesuffix(_NEW) + _BASE for run in own if run.trigger == CHECK and run.night.endswith(_NEW)
        }
        candidates = [
            night
            for night in (list_nights(conn) if nights is None else nights)
            if ((night.started_at, night.night) < before or night.night in own_base)
            and any(run.measured and run.testbed_id in testbeds for run in night.runs)
            and (is_ad_hoc or not {run.trigger for run in night.runs} & AD_HOC)
        ]
        cells = expected_cells(conn, ours)

        def place(night: NightInfo) -> tuple[bool, bool]:
            return night.night not in own_base, branches.isdisjoint((run.repo, run.branch) for run in night.runs)

        for night in sorted(candidates, key=place):
            theirs = expected_cells(conn, [run.key for run in night.runs if run.testbed_id in testbeds])
            if len(cells & theirs) >= ENOUGH * len(cells):
                yield night


def previous_night(source: Source, night: str) -> str:
    """Return the newest base of a night (`base_nights`); empty where there is none, or the night is not stored."""
    with connected(source) as conn:
        runs = next((one.runs for one in list_nights(conn) if one.night == night), ())
        return next((one.night for one in base_nights(conn, runs)), "") if runs else ""


def expected_cells(conn: Connection, runs: Collection[int]) -> set[int]:
    """Return the store's numbers of the cells that some runs (by number) planned or measured."""
    planned = select(Planned.cell).where(Planned.run.in_(runs))
    return set(conn.execute(union(planned, select(measurements.c.cell).where(measurements.c.run.in_(runs)))).scalars())


SideKind = Literal["latest", "run", "night", "commit", "branch", "tag", "branch@commit"]

#: Fewer digits of a commit than this are taken for a mistake.
SHORTEST_SHA = 6
A_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: one or more runs, newest first. `text` is what the person wrote."""

    text: str
    kind: SideKind
    runs: tuple[RunInfo, ...]

    @property
    def keys(self) -> tuple[int, ...]:
        """The database's numbers of its runs."""
        return tuple(run.key for run in self.runs)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The names of its runs, newest first."""
        return tuple(run.run_id for run in self.runs)

    @property
    def commits(self) -> tuple[str, ...]:
        """Its commits, each once, newest run first."""
        return tuple(dict.fromkeys(run.commit for run in self.runs))

    @property
    def branches(self) -> tuple[str, ...]:
        """Its branches, each once, newest run first."""
        return tuple(dict.fromkeys(run.branch for run in self.runs))

    @property
    def nights(self) -> tuple[str, ...]:
        """The nights of its runs, each once, newest run first."""
        return tuple(dict.fromkeys(run.night for run in self.runs))

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases of torch that its runs measured, each once, newest run first."""
        return tuple(dict.fromkeys(run.release for run in self.runs if run.release))

    @property
    def started_at(self) -> datetime:
        """The start of its night, or of the newest of several nights."""
        return min(run.started_at for run in self.runs if run.night == self.runs[0].night)

    @property
    def title(self) -> str:
        """The side in a heading: `main@0123456789 (run-1)`, `... (night n-1, 4 GPUs)`, `... (2.12.1, 3 runs)`."""
        where = f"{'+'.join(self.branches)}@{'+'.join(sha[:10] for sha in self.commits)}"
        return f"{where} ({self._spelled})"

    @property
    def _spelled(self) -> str:
        return ", ".join([*self.releases, self._which])

    @property
    def _which(self) -> str:
        runs, nights = len(self.runs), len(self.nights)
        if nights == 1 and (runs > 1 or self.kind in ("latest", "night")) and self.nights != self.run_ids:
            return f"night {self.nights[0]}, {self._devices}"
        if runs == 1:
            return self.run_ids[0]
        return f"{runs} runs" if nights == runs else f"{counted(nights, 'night')}, {runs} runs"

    @property
    def _devices(self) -> str:
        """The number of GPUs where each run had one of its own, else the number of runs."""
        devices = {
            f"{run.testbed.get('node')}/{run.testbed['gpu_index']}" for run in self.runs if "gpu_index" in run.testbed
        }
        what = "GPU" if len(devices) == len(self.runs) else "run"
        return counted(len(self.runs), what)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        names = ("run_id", "night", "repo", "branch", "commit", "testbed_id", "label")
        runs = [
            {
                **{name: getattr(run, name) for name in names},
                "started_at": run.started_at.isoformat(),
                "finished_at": run.finished_at.isoformat() if run.finished_at else None,
            }
            for run in self.runs
        ]
        return {"text": self.text, "kind": self.kind, "runs": runs}


def resolve_side(source: Source, text: str) -> Side:
    """Return the side that `text` names.

    The text is one of: `latest` (the newest night), `latest~N` (the Nth of its `base_nights`), the name of a night or of a run or
    a unique beginning of one, a commit (at least six digits), a branch (its newest commit that has runs), a tag of a commit
    (git's), a release of torch (`2.12.1`), a pull request (`#154667`), the newest night of a day (`2026-11-20`, UTC) or
    of a device (`H200`), or `branch@commit`, where a tag may stand for the commit. A name that is spelled out in full wins
    over one that is only begun. A night or `latest` stands for all runs of that night, a commit, tag or branch for all runs
    of that commit, a run id for that one run and the runs that confirm it. A census, whose cells have no latencies, is named by
    its run alone. Raises `SideError` where the database has no runs, or `text` names none or more than one thing; one line with
    the nearest names; `NoBaseError` for a `latest~N` without so many base nights.
    """
    text = clean(text)  # as names were when they were stored
    with connected(source) as conn:
        if match := re.fullmatch(r"latest(?:~(\d{1,9}))?", text):
            return _latest(conn, text, int(match[1] or 0))
        for kind, find in _NAMES:
            if runs := find(conn, text):
                return Side(text, kind, runs) if kind in ("run", "night", "branch") else _commit_side(text, kind, runs)
        if side := _beginning(conn, text):
            return side
        if runs := _of_device(conn, text):
            return Side(text, "night", runs)
        raise _unknown(conn, text)


def order_note(source: Source, *sides: Side) -> str:
    """Return a warning where `latest` or a branch names a night that is not the one stored last; empty where it is.

    Nights are ordered by when they started, by the clock of the host that measured. There is no warning unless the night stored
    last has the branch and trigger of the newest one here: a backfill is meant to store older nights.
    """
    newest = max(
        (run for side in sides if side.kind in ("latest", "branch") for run in side.runs),
        key=lambda run: run.started_at,
        default=None,
    )
    if newest is None:
        return ""
    with connected(source) as conn:
        last = _runs(conn, Run.id == select(func.max(Run.id)).where(is_measured()).scalar_subquery())
    known = {run.night for side in sides for run in side.runs}
    if not last or last[0].night in known or (last[0].branch, last[0].trigger) != (newest.branch, newest.trigger):
        return ""
    # Hosts need not end in the order in which they began.
    allowed_s = 0 if last[0].testbed_id == newest.testbed_id else A_DAY_S
    if (newest.started_at - last[0].started_at).total_seconds() <= allowed_s:
        return ""
    return (
        f"night {one_line(last[0].night)} was stored last, but by the clock of its host it began on"
        f" {last[0].started_at:%Y-%m-%d}, before night {one_line(newest.night)} of {newest.started_at:%Y-%m-%d}: it is not"
        " judged here; name it to judge it, and correct the clock if it is wrong"
    )


def _latest(conn: Connection, text: str, back: int) -> Side:
    nights = conn.execute(newest_nights(is_measured())).scalars().all()
    if not nights:
        raise SideError(_EMPTY)
    newest = _runs(conn, Run.night == nights[0])
    new_side = nights[0].removesuffix(_BASE) + _NEW
    if nights[0].endswith(_BASE) and new_side in nights and {run.trigger for run in newest} == {CHECK}:
        newest = _runs(conn, Run.night == new_side)  # a check's base may have measured last
    if not back:
        return Side(text, "latest", newest)
    bases = list(islice(base_nights(conn, newest), back))
    if len(bases) == back:
        return Side(text, "latest", bases[-1].runs)
    if len(nights) == 1:
        raise NoBaseError(f"{text}: the database has 1 night: measure another one with `inductor-watch nightly`")
    oldest = f" (the oldest is latest~{len(bases)})" if bases else ""
    raise NoBaseError(
        f"{text}: of the nights before {one_line(nights[0])} {len(bases) or 'none'} measured at least half of its cells on"
        f" its testbed{oldest}; what was run ad hoc does not count. Name the side to compare with: `inductor-watch runs` lists"
        " them"
    )


_EMPTY = (
    "the database has no runs yet: measure some with `inductor-watch nightly`, or use `inductor-watch ingest BUNDLE`"
)


def _of_branch(conn: Connection, text: str) -> tuple[RunInfo, ...]:
    """Return the runs of the newest commit of a branch. Raises `SideError` if a tag of the same name has other commits."""
    newest = conn.execute(
        select(Run.commit)
        .where(Run.branch == text, is_measured())
        .order_by(Run.started_at.desc(), Run.run_id.desc())
        .limit(1)
    ).scalar()
    if newest is None:
        return ()
    runs = _runs(conn, Run.branch == text, Run.commit == newest, is_measured())
    if others := {run.commit for run in _runs(conn, _is_tagged(text), is_measured())} - {run.commit for run in runs}:
        sha, name = min(others), one_line(text)
        raise SideError(
            f"{name} is a branch and also a tag: write {name}@{runs[0].commit[:10]} for the branch, or {sha[:10]} for the tag"
        )
    return runs


def _is_tagged(name: str) -> ColumnElement[bool]:
    return exists().where(Tag.name == name, Tag.repo == Commit.repo, Tag.sha == Commit.sha)


def _of_version(conn: Connection, text: str) -> tuple[RunInfo, ...]:
    """Return the runs of a release of torch (`2.12.1` or `v2.12.1`), whose commit the environments of its runs name."""
    match = re.fullmatch(r"v?(\d+\.\d+\.\d+)", text)
    if not match:
        return ()
    torch, sha = (Environment.data[name].as_string() for name in ("torch", "torch_git"))
    of_release = select(sha).where((torch == match[1]) | torch.startswith(f"{match[1]}+"))
    return _runs(conn, Commit.sha.in_(of_release), is_measured())


def _of_pull_request(conn: Connection, text: str) -> tuple[RunInfo, ...]:
    """Return the runs of the commit that a pull request became: PyTorch's titles end in its number."""
    return _runs(conn, Commit.title.endswith(f"({text})"), is_measured()) if re.fullmatch(r"#\d{1,9}", text) else ()


def _of_day(conn: Connection, text: str) -> tuple[RunInfo, ...]:
    """Return all runs of the newest night of which a run started on a day, in UTC."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return ()
    night = conn.execute(
        newest_nights(is_measured(), Run.started_at >= day, Run.started_at < day + A_DAY_S).limit(1)
    ).scalar()
    return () if night is None else _runs(conn, Run.night == night)


def _of_device(conn: Connection, text: str) -> tuple[RunInfo, ...]:
    """Return the runs of the newest night on devices with the word in their names, such as `H200`."""
    if not re.fullmatch(r"[A-Za-z][\w -]{2,}", text):
        return ()
    word = text.lower()
    rows = conn.execute(select(Testbed.id, Testbed.data)).all()
    keys = [key for key, data in rows if re.search(rf"\b{re.escape(word)}", device_name(data).lower())]
    on_device = Run.testbed.in_(keys)
    night = conn.execute(newest_nights(on_device, is_measured()).limit(1)).scalar()
    return () if night is None else _runs(conn, Run.night == night, on_device)


def _of_branch_and_commit(conn: Connection, text: str) -> tuple[RunInfo, ...]:
    branch, at, sha = text.rpartition("@")
    if not at or not sha or conn.execute(select(Run.id).where(Run.branch == branch).limit(1)).first() is None:
        return ()
    on_branch = and_(Run.branch == branch, is_measured())
    of_name = _runs(conn, on_branch, Commit.sha == sha) or _runs(conn, on_branch, _is_tagged(sha))
    if runs := of_name or _by_sha(conn, sha, on_branch):
        return runs
    known = conn.execute(select(Commit.sha).join(Run, Run.commit == Commit.id).where(on_branch)).scalars()
    raise SideError(
        f"branch {one_line(branch)} has no runs of commit {one_line(sha)}{nearest(sha, known)}{_too_short(sha)}"
    )


def _beginning(conn: Connection, text: str) -> Side | None:
    """Return the side of which the text begins the name of a run, a night or a commit.

    The text may begin several names only if one of them stands for the runs of the others: a commit for its runs, a night for its
    own. Else `SideError` is raised.
    """
    by_run = _runs(conn, func.substr(Run.run_id, 1, len(text)) == text) if text else ()
    by_night = _runs(conn, func.substr(Run.night, 1, len(text)) == text, Run.night != Run.run_id) if text else ()
    by_sha = _by_sha(conn, text)
    nights = dict.fromkeys(run.night for run in by_night)
    by_night = _runs(conn, Run.night.in_(nights)) if nights else ()
    named = {run.key for run in (*by_run, *by_night)}
    if by_sha and named <= {run.key for run in by_sha}:
        return _commit_side(text, "commit", by_sha)
    if len(nights) == 1 and not by_sha and named == {run.key for run in by_night}:
        return Side(text, "night", by_night)
    if len(by_run) + len(nights) + len({run.commit for run in by_sha}) > 1:
        raise _ambiguous(text, [*nights, *(run.run_id for run in by_run), *(run.commit for run in by_sha)])
    return Side(text, "run", by_run) if by_run else None


def _confirmed(conn: Connection, text: str) -> tuple[RunInfo, ...]:
    """Return the runs of a night in which cells were measured again; such a night may have the name of its first run."""
    runs = _runs(conn, Run.night == text)
    return runs if any(run.trigger == CONFIRM for run in runs) else ()


def _by_sha(conn: Connection, sha: str, *where: ColumnElement[bool]) -> tuple[RunInfo, ...]:
    if len(sha) < SHORTEST_SHA:
        return ()
    return _runs(conn, func.lower(func.substr(Commit.sha, 1, len(sha))) == sha.lower(), is_measured(), *where)


def _commit_side(text: str, kind: SideKind, runs: tuple[RunInfo, ...]) -> Side:
    """Return the side. Raises `SideError` if its digits begin several commits, or one commit of several repositories."""
    if len({(run.repo, run.commit) for run in runs}) > 1:
        raise _ambiguous(text, [f"{run.repo}@{run.commit}" for run in runs])
    return Side(text, kind, runs)


def _runs(conn: Connection, *where: ColumnElement[bool]) -> tuple[RunInfo, ...]:
    return tuple(find_runs(conn, *where))


def _ambiguous(text: str, candidates: Sequence[str]) -> SideError:
    names = sorted(set(candidates))
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return SideError(
        f"{one_line(text)} could be {', '.join(map(one_line, names[:4]))}{more}: write more characters of it"
    )


def _unknown(conn: Connection, text: str) -> SideError:
    runs = _runs(conn)
    if not runs:
        return SideError(_EMPTY)
    if commits := tagged(conn, text):
        which = ", ".join(f"{one_line(repo)}@{sha[:10]}" for repo, sha in commits)
        return SideError(
            f"the tag {one_line(text)} is {which}, which no run in the database measured: measure it, or ingest a bundle of it"
        )
    of_runs = {name for run in runs for name in (run.run_id, run.night, run.branch, run.commit, run.release) if name}
    names = of_runs | {"latest", *measured_tags(conn)}
    return SideError(
        f"no night, run, branch, tag, release or commit is called {one_line(text)!r}{nearest(text, names)}{_too_short(text)}"
    )


def _too_short(sha: str) -> str:
    is_short = 0 < len(sha) < SHORTEST_SHA and re.fullmatch(r"[0-9a-f]+", sha) is not None
    return f" (a commit needs at least {SHORTEST_SHA} digits)" if is_short else ""


#: Ways to understand a text as a whole name, in the order in which they are tried, each with a function that finds the runs.
_NAMES: tuple[tuple[SideKind, Callable[[Connection, str], tuple[RunInfo, ...]]], ...] = (
    ("night", _confirmed),
    ("run", lambda conn, text: _runs(conn, Run.run_id == text)),
    ("night", lambda conn, text: _runs(conn, Run.night == text)),
    ("branch", _of_branch),
    ("tag", lambda conn, text: _runs(conn, _is_tagged(text), is_measured())),
    ("tag", _of_version),
    ("commit", _of_pull_request),
    ("night", _of_day),
    ("branch@commit", _of_branch_and_commit),
    ("commit", lambda conn, text: _runs(conn, Commit.sha == text, is_measured())),
)

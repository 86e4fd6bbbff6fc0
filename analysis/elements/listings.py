"""Cells, commits and records of regressions as tables, and the sides of a comparison in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

from analysis.compare.cell_comparison import CellComparison, Finding, direction
from analysis.compare.cell_verdicts import LEAK
from analysis.compare.comparison import Comparison
from analysis.elements import addresses
from analysis.elements.addresses import cell_query, fixed_side
from analysis.elements.wording import (
    ABSENT,
    ChangeWords,
    Link,
    anchor,
    change_cells,
    count,
    joined,
    judged,
    lines,
    moment,
    mono,
    number,
    paragraph,
    signed,
    span,
    table,
    unjudged,
)
from analysis.history.regression_record import Listed, OfCommit, Record
from analysis.present import commit_title, remarks
from collector.metrics import METRICS
from collector.vocabulary import Cell
from db.commits.commit_history import CommitEntry, CommitRange, commit_range
from db.connecting import Source
from db.nights import device_name
from db.queries.cells import CellName
from db.queries.side_rows import CellState
from db.queries.sides import Side
from db.regression_records import OPEN, RegressionInfo
from db.store_errors import CommitError


def describe(side: Side, link: Link) -> Markup:
    """Return a side in a few words with links to its commits: its title, its start, its devices and labels."""
    labels = dict.fromkeys(run.label for run in side.runs if run.label)
    devices = dict.fromkeys(device_name(run.testbed) or run.testbed_id for run in side.runs)
    titled = commit_title(side)
    title = anchor(link("commit", new=fixed_side(side), base=""), titled) if titled else ""
    parts = [_title(side), title, f"{moment(side.started_at)} UTC", *devices, *labels]
    return joined(" · ", parts)


def pair_lines(comparison: Comparison, link: Link) -> list[Markup]:
    """Return both sides, and a link to the commits between them, a line each."""
    landed = addresses.between(comparison.base, comparison.new)
    sides = [Markup("base ") + describe(comparison.base, link), Markup("new ") + describe(comparison.new, link)]
    return [*sides, *([Markup("commits ") + landed] if landed else [])]


def _title(side: Side) -> Markup:
    """Return the title of a side with links for its commits."""
    repos = {run.commit: run.repo for run in side.runs}
    branches = f"{'+'.join(side.branches)}@"
    rest = side.title.removeprefix(branches + "+".join(sha[: addresses.SHOWN] for sha in side.commits))
    return escape(branches) + joined("+", (addresses.commit(repos[sha], sha) for sha in side.commits)) + rest


#: Characters of a message that are shown.
_MESSAGE = 220


def change_table(title: str, changed: Iterable[tuple[CellComparison, Finding]], link: Link, note: str = "") -> Markup:
    """Return a table with a line for each change."""
    head = ["cell", "metric", "base", "new", "change", "95 %", "verdict", "beside"]
    drawn = table(title, head, [_change_row(*item, link) for item in changed], note=note, numbers=range(2, 7))
    return Markup('<div class="iw-list iw-changes">{}</div>').format(drawn)


def _change_row(one: CellComparison, finding: Finding, link: Link) -> tuple[str, ...]:
    metric = finding.metric
    if metric is None:
        words = span(finding.verdict.look, finding.verdict.value)
        return _short_name(one.cell, link), "status", one.base.status or "", one.new.status or "", "", "", words, ""
    values = [number(metric, state.values.get(metric)) for state in (one.base, one.new)]
    change = judged(one, metric)
    change = change._replace(intervals=change.intervals[:1]) if change else None
    beside = span("soft", remarks(one, finding))
    return _short_name(one.cell, link), METRICS[metric].title, *values, *change_cells(change), beside


def _short_name(cell: CellName, link: Link) -> Markup:
    """Return a cell as a link on one line; the pointer shows its suite, phase, dtype and device."""
    phase = "" if cell.phase == "inference" else cell.phase
    name = joined(" ", [cell.model, span("soft", " ".join(filter(None, (phase, cell.config))))])
    where = f"{cell.suite}, {cell.phase}, {cell.dtype}, {cell.device}"
    return Markup('<a href="{}" target="_self" title="{}">{}</a>').format(
        link("model", **cell_query(cell)), where, name
    )


def named(cell: CellName, link: Link) -> Markup:
    """Return a cell as a link to its page, and below it its suite, phase and dtype."""
    name = joined(" ", [cell.model, span("soft", cell.config)])
    return lines(anchor(link("model", **cell_query(cell)), name), where(cell))


def where(cell: CellName) -> Markup:
    """Return the suite, phase and dtype of a cell."""
    return span("soft", f"{cell.suite}, {cell.phase}, {cell.dtype}")


def reason(state: CellState) -> Markup:
    """Return why a cell did not pass, in a line or two."""
    if state.status is None:
        return span("soft", "planned, and no measurement of it was stored")
    head = " in ".join(filter(None, (state.exception, state.stage)))
    message = state.message if state.message != state.exception else ""
    words = ": ".join(filter(None, (head, message)))
    words = words if len(words) <= _MESSAGE else f"{words[:_MESSAGE]}..."
    hint = span("soft", f"Hint: {state.hint}") if state.hint else ""
    return lines(words, hint) or span("soft", "no reason was recorded")


def metric_row(metric: str, values: Sequence[float | None], change: ChangeWords | None) -> list[str]:
    """Return a metric's title and values and, for two values, the change with interval and verdict, if it was judged."""
    shown = METRICS[metric]
    title = Markup('<span title="{}">{}</span>').format(shown.meaning, shown.title)
    cells = [title, *(number(metric, value) for value in values)]
    if len(values) < 2:
        return cells
    base, new = values
    change = change or unjudged(base, new)
    size, interval, word = change_cells(change)
    if shown.judged_by and not word:
        word = span("soft", f"not judged: {METRICS[shown.judged_by].title} is")
    if base is None or new is None:
        size = ABSENT
    elif shown.is_count or metric == LEAK or change is None:
        # Counts and leaks may begin at 0: their difference is shown.
        sense = direction(metric, base, new) if shown.is_count else change.look if change else None
        size = span(sense if sense in ("better", "worse") else "calm", signed(new - base, 0, shown.unit))
    return [*cells, size, interval, word]


#: Commits of a range that are shown.
_LANDED = 30


def commit_facts(side: Side) -> Markup:
    """Return the facts on the commit of a side, as a table."""
    run = side.runs[0]
    commits = [addresses.commit(run.repo, sha) for sha in side.commits]
    number = _pull_request(commit_title(side))
    facts = {
        "commit": Markup(", ").join(commits),
        "title": commit_title(side) or "not known",
        "pull request": addresses.pull(run.repo, number, ABSENT),
        "written": f"{moment(run.commit_date)} UTC" if run.commit_date else ABSENT,
        "branch": f"{', '.join(side.branches)} of {run.repo}",
        "measured": f"{moment(run.started_at)} UTC, {count(len(side.runs), 'run')}",
    }
    return Markup('<div class="iw-narrow">{}</div>').format(table("Facts", ("field", "value"), list(facts.items())))


def _pull_request(title: str) -> int | None:
    """Return the number of the pull request at the end of a title, as PyTorch's merge bot writes it, or None."""
    head, _, tail = title.rstrip().rpartition("(#")
    return int(tail[:-1]) if head and tail[:-1].isdecimal() and tail.endswith(")") and len(tail) < 10 else None


def landed_commits(source: Source, base: Side, new: Side) -> CommitRange | None:
    """Return the commits after base up to new; None where their order is not known, or no commit lies between."""
    if len(base.commits) != 1 or len(new.commits) != 1:
        return None
    try:
        landed = commit_range(source, base.commits[0], new.commits[0], new.runs[0].repo)
    except CommitError:
        return None
    return landed if landed.distance else None


def landed_table(landed: CommitRange) -> Markup:
    """Return the newest commits of a range, as a table."""
    rows = [
        (
            addresses.commit(one.repo, one.sha),
            one.title or "no title",
            addresses.pull(one.repo, one.pr_number, ABSENT),
        )
        for one in landed.commits[::-1][:_LANDED]
    ]
    note = f"{count(landed.distance, 'commit')} after the base, the newest first"
    return table("Landed", ("commit", "title", "pull request"), rows, note=note)


#: Commits of a blame range that are shown.
_COMMITS = 40


def record_table(caption: str, records: Sequence[Listed], link: Link, note: str = "") -> Markup:
    """Return a table with a row for each record, in their order."""
    head = ("cell", "state", "metric", "base", "new", "change", "onset", "since", "owner")
    drawn = table(caption, head, [_row(record, link) for record in records], note=note, numbers=(3, 4, 5, 7))
    return Markup('<div class="iw-list">{}</div>').format(drawn)


def _row(record: Listed, link: Link) -> list[str]:
    info = record.info
    return [
        anchor(link("regressions", record=info.regression_id), record.name),
        state_tag(info),
        what_changed(info),
        *change_of(info),
        joined("@", [info.branch, addresses.commit(info.repo, info.onset_commit, ABSENT)]),
        moment(info.onset_at) if info.onset_at else ABSENT,
        info.owner or "nobody",
    ]


def what_changed(info: RegressionInfo) -> str:
    """Return the kind of the record, and its metric by the name that all pages use."""
    return f"{info.kind}, {METRICS[info.metric].title}" if info.metric in METRICS else info.kind


def state_tag(info: RegressionInfo) -> Markup:
    """Return the state of a record as a small label."""
    return span("tag fail" if info.state in OPEN else "tag", info.state.replace("_", " "))


def change_of(info: RegressionInfo) -> tuple[str, str, str]:
    """Return the pinned value, the new value, and the change; dashes where a status changed."""
    if info.base_value is None or info.new_value is None:
        return ABSENT, ABSENT, ABSENT
    change = signed(100 * (info.new_value / info.base_value - 1)) if info.base_value > 0 else ABSENT
    return number(info.metric, info.base_value), number(info.metric, info.new_value), change


def commit_records(group: OfCommit, titles: Mapping[str, str], link: Link) -> Markup:
    """Return the records of one onset under the commit's title, which links to the commit's page."""
    sha = group.commit or ""
    words = titles.get(sha) or f"{group.branch}@{sha[: addresses.SHOWN]}"
    known = anchor(link("commit", new=f"{group.branch}@{sha}", base=""), words) if sha in titles else words
    since = f"{moment(group.onset_at)} UTC" if group.onset_at else ""
    head = joined(", ", [known, addresses.commit(group.repo, group.commit), since])
    return paragraph("", Markup("<b>{}</b>").format(head)) + record_table(group.tally, group.records, link)


def record_facts(record: Record, link: Link) -> Markup:
    """Return a table of facts on a record: its cell, state, change, and the runs that it pins."""
    info, cell = record.info, record.cell
    onset = f", {moment(info.onset_at)} UTC" if info.onset_at else ""
    before, after, change = change_of(info)
    compared = "both runs beside each other"
    if cell and info.base_run and info.onset_run:
        sides = {"base": info.base_run, "new": info.onset_run}
        compared = anchor(link("model", **sides, **model_query(cell)), compared)
    facts = {
        "cell": record.name,
        "state": joined(" ", [state_tag(info), f"set {moment(info.state_since)} UTC"]),
        "change": what_changed(info) + (f": {before} → {after}, {change}" if info.metric else ""),
        "branch": f"{info.branch} of {info.repo}, testbed {info.testbed_id}",
        "base (pinned)": _run(info.repo, info.base_commit, info.base_run),
        "onset": joined("", [_run(info.repo, info.onset_commit, info.onset_run), onset]),
        "runs": compared,
        **({"kernels": lines(*(mono(line) for line in record.kernels))} if record.kernels else {}),
        "owner": info.owner or "nobody",
        "link": addresses.reference(info.repo, info.link) if info.link else "none",
    }
    return table("Details", ("field", "value"), list(facts.items()))


def _run(repo: str, sha: str | None, run: str | None) -> Markup:
    return joined(", ", [addresses.commit(repo, sha, "commit not known"), f"run {run or 'dropped'}"])


def blame_table(record: Record) -> Markup:
    """Return a table of the commits that a change can come from, or a sentence if there is none."""
    if record.distance is None:
        return paragraph(
            "",
            (record.unknown or "").replace("`", "")
            or "Blame range not known: a commit of the record is not in the database.",
        )
    if not record.distance:
        return paragraph("", "No commit landed in between: the same code, or a change that is none of the commits'.")
    note = f"{count(record.distance, 'commit')} after the base up to the onset"
    info = record.info
    landed = addresses.commits(info.repo, info.base_commit, info.onset_commit)
    rows = [_commit(entry) for entry in record.commits[:_COMMITS]]
    head = ("commit", "title", "pull request", "links")
    return table("Blame range", head, rows, note=note) + paragraph("soft", Markup("All commits: ") + landed)


def _commit(entry: CommitEntry) -> list[str]:
    links = {"reverts": entry.reverts, "reverted by": entry.reverted_by, "relanded by": entry.relanded_by}
    words = joined(
        ", ",
        (joined(" ", [word, addresses.commit(entry.repo, sha)]) for word, shas in links.items() for sha in shas),
    )
    pull = addresses.pull(entry.repo, entry.pr_number, ABSENT)
    return [addresses.commit(entry.repo, entry.sha), entry.title or "no title", pull, words]


def history_table(info: RegressionInfo) -> Markup:
    """Return a table of a record's events: when, who, the new state or a note, and the text."""
    rows = [
        (
            moment(event.at),
            event.author,
            event.to_state.replace("_", " ") if event.from_state != event.to_state else "note",
            event.text,
        )
        for event in info.events
    ]
    return table("History", ("when (UTC)", "who", "status", "note"), rows)


def model_query(cell: Cell) -> dict[str, str]:
    """Return the query that names a cell on the model page."""
    setting = f"{cell.phase.value},{cell.dtype},{cell.device},{cell.batch_size}"
    return {"model": f"{cell.suite}/{cell.model}", "setting": setting, "config": cell.config.name}

"""Records of regressions as tables: many of them, and what is known of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from analysis.elements import outside_links
from analysis.elements.markup import Link, anchor, joined, lines, mono, paragraph, span, table
from analysis.elements.wording import ABSENT, count, moment, number, signed
from analysis.history.regression_record import Listed, OfCommit, Record
from collector.metrics import METRICS
from collector.vocabulary import Cell
from db.commits.ranges import CommitEntry
from db.regression_records import OPEN, RegressionInfo

#: Commits of a blame range that are shown.
_COMMITS = 40


def record_table(caption: str, records: Sequence[Listed], link: Link, note: str = "") -> Markup:
    """Return a table with a row a record, in their order."""
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
        joined("@", [info.branch, outside_links.commit(info.repo, info.onset_commit, ABSENT)]),
        moment(info.onset_at) if info.onset_at else ABSENT,
        info.owner or "nobody",
    ]


def what_changed(info: RegressionInfo) -> str:
    """The kind of the record, and its metric by the name that all pages use."""
    return f"{info.kind}, {METRICS[info.metric].title}" if info.metric in METRICS else info.kind


def state_tag(info: RegressionInfo) -> Markup:
    """The state as a small label."""
    return span("tag fail" if info.state in OPEN else "tag", info.state.replace("_", " "))


def change_of(info: RegressionInfo) -> tuple[str, str, str]:
    """The pinned value, the one that was found, and the change; dashes where a status changed."""
    if info.base_value is None or info.new_value is None:
        return ABSENT, ABSENT, ABSENT
    change = signed(100 * (info.new_value / info.base_value - 1)) if info.base_value > 0 else ABSENT
    return number(info.metric, info.base_value), number(info.metric, info.new_value), change


def commit_records(group: OfCommit, titles: Mapping[str, str], link: Link) -> Markup:
    """Return the records of one onset under the commit's title, which leads to its page."""
    sha = group.commit or ""
    words = titles.get(sha) or f"{group.branch}@{sha[: outside_links.SHOWN]}"
    known = anchor(link("commit", new=f"{group.branch}@{sha}", base=""), words) if sha in titles else words
    since = f"{moment(group.onset_at)} UTC" if group.onset_at else ""
    head = joined(", ", [known, outside_links.commit(group.repo, group.commit), since])
    return paragraph("", Markup("<b>{}</b>").format(head)) + record_table(group.tally, group.records, link)


def record_facts(record: Record, link: Link) -> Markup:
    """Return what is known of a record: its cell, state, change, and the runs that it pins."""
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
        "link": outside_links.reference(info.repo, info.link) if info.link else "none",
    }
    return table("Details", ("field", "value"), list(facts.items()))


def _run(repo: str, sha: str | None, run: str | None) -> Markup:
    return joined(", ", [outside_links.commit(repo, sha, "commit not known"), f"run {run or 'dropped'}"])


def blame_table(record: Record) -> Markup:
    """Return the commits that a change can come from."""
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
    landed = outside_links.commits(info.repo, info.base_commit, info.onset_commit)
    rows = [_commit(entry) for entry in record.commits[:_COMMITS]]
    head = ("commit", "title", "pull request", "links")
    return table("Blame range", head, rows, note=note) + paragraph("soft", Markup("All commits: ") + landed)


def _commit(entry: CommitEntry) -> list[str]:
    links = {"reverts": entry.reverts, "reverted by": entry.reverted_by, "relanded by": entry.relanded_by}
    words = joined(
        ", ",
        (joined(" ", [word, outside_links.commit(entry.repo, sha)]) for word, shas in links.items() for sha in shas),
    )
    pull = outside_links.pull(entry.repo, entry.pr_number, ABSENT)
    return [outside_links.commit(entry.repo, entry.sha), entry.title or "no title", pull, words]


def history_table(info: RegressionInfo) -> Markup:
    """Return who moved a record from which state to which, and when."""
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
    """Return what the address of the model page has of a cell."""
    setting = f"{cell.phase.value},{cell.dtype},{cell.device},{cell.batch_size}"
    return {"model": f"{cell.suite}/{cell.model}", "setting": setting, "config": cell.config.name}

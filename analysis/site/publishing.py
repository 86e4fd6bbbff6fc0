"""Publish the newest nights of a store as a folder of pages that needs no server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine

from analysis.compare.cell_comparison import CellComparison, Outcome
from analysis.compare.comparison import Comparison, causes
from analysis.elements import addresses
from analysis.elements.listings import (
    blame_table,
    change_table,
    commit_facts,
    commit_records,
    describe,
    history_table,
    landed_commits,
    landed_table,
    model_query,
    pair_lines,
    reason,
    record_facts,
    record_table,
    what_changed,
)
from analysis.elements.overview_tables import answer, changes_figure, compared_sentence, dimensions, grid
from analysis.elements.wording import RULE, anchor, count, status_tag, table
from analysis.history.regression_record import Listed, Record, by_commit, listed, record_of
from analysis.present import noise_line
from analysis.reports.html_report import converter
from analysis.site.cell_details import details_of
from analysis.site.site_data import Pair, PublishedNight, SiteData, SiteFiles, digest, file_of, is_worse
from analysis.site.site_pages import COLORS, SitePages, as_script, code_version, trend_sections, write_models
from db.nights import local_commits
from db.queries.cells import CellName, cell_names

#: Default number of a site's nights.
NIGHTS = 60
#: Most cells of a pair that have a page of their change, most changes listed for one cause, and most entries of the feed.
_PAGED, _OF_CAUSE, _ENTRIES = 40, 12, 50
#: Roughly the most bytes of these pages, the largest part of a site: once they are used up, older pairs have no such pages.
_CHANGE_BYTES = 3_000_000
#: Most rows of the overview's tables.
_ROWS = 25
_VEGA = "static/vega.js"
_VEGA_NOTICE = (
    "// Vega, Vega-Lite and vega-embed, as vl-convert bundles them. Copyright (c) University of Washington Interactive Data"
    " Lab and contributors, BSD-3-Clause: https://github.com/vega\n"
)


@dataclass(frozen=True, slots=True)
class Published:
    """The numbers of a publication: nights and pairs, files written, kept as they were and removed, and bytes of the site."""

    nights: int
    pairs: int
    written: int
    kept: int
    removed: int
    size: int


def publish(engine: Engine, folder: Path, *, nights: int = NIGHTS, address: str = "", made_by: str = "") -> Published:
    """Write the newest `nights` nights of a store into a folder.

    `address` is the site's later address, for the feed's links; `made_by` is the version of the tool. Files whose sources did
    not change stay as they are. Raise `SiteFolderError` for a folder that holds something else, and `PictureError` if
    the charts' library is not installed.
    """
    with engine.connect() as conn:
        addresses.LOCAL.set(local_commits(conn))
        data = SiteData(conn, nights)
        site = _Site(data, SiteFiles(folder, digest(made_by, code_version())), address.rstrip("/"))
        site.write()
        files = site.files
        return Published(len(data.nights), len(data.pairs), files.written, files.kept, files.removed, files.size)


class _Site:
    """All files of a site."""

    def __init__(self, data: SiteData, files: SiteFiles, address: str) -> None:
        self.data, self.files, self.address = data, files, address
        self.conn: Connection = data.conn
        names = cell_names(self.conn).to_dict("records")
        shown = self._published_cells()
        cells = [
            CellName(**{key: row[key] for key in CellName.__dataclass_fields__})
            for row in names
            if row["cell_id"] in shown
        ]
        self.pages = SitePages(files, cells)
        self._verdicts: dict[Pair, Any] = {}

    def _published_cells(self) -> set[str]:
        """Write the file of each night, and return the ids of their cells."""
        found: set[str] = set()
        for night in self.data.nights:
            name = f"data/nights/{night.file}.json"
            if not self.files.is_current(name, night.key):
                self.files.put_json(name, self.data.night_json(night), night.key)
            found.update(self.files.read_json(name)["cells"])
        return found

    def write(self) -> None:
        """Write the files that changed, and remove files that no longer belong to the site."""
        records = listed(self.conn, with_closed=True)
        self.pages.commits = {night.run.commit: f"commit/{file_of(night.run.commit)}/" for night in self.data.nights}
        self.pages.records = {
            one.info.regression_id: f"regressions/{file_of(one.info.regression_id)}/" for one in records
        }
        self._write_static()
        room = _CHANGE_BYTES
        # The pages of models show the changes of the newest pair of neighbours.
        paged = set(self.data.neighbours[1:])
        for pair in self.data.pairs:  # neighbours first, the newest of them first
            verdicts = self._write_pair(pair, with_pages=room > 0 and pair in paged)
            room -= sum(self.files.size_of(name) for name in self._pages_of(pair, verdicts))
            self._verdicts[pair] = verdicts
            if pair in self._of_commits:  # its comparison is still in memory
                self._write_commit(self.data.by_name[pair[1]], pair)
        self._write_overview()
        self._write_commits()
        write_models(self.data, self.pages, self._verdicts)
        sections = trend_sections(self.data, self.pages)
        self.pages.put("trends/index.html", "trends.html.j2", title="Trends", page="trends", sections=sections)
        self._write_records([record_of(self.conn, one.info) for one in records])
        head = {"title": "Compare", "page": "compare", "rule": RULE}
        self.pages.put("compare/index.html", "compare.html.j2", **head)
        self._write_feed(records)
        self.files.put_json("data/site.json", self.data.index_json(self.pages.cells, self.pages.models))
        self.files.close()

    def _write_static(self) -> None:
        static = package_files("analysis.site") / "static"
        tables = (package_files("analysis.elements") / "tables.css").read_text(encoding="utf-8")
        self.files.put("static/site.css", tables + (static / "site.css").read_text(encoding="utf-8"))
        self.files.put("static/site.js", (static / "site.js").read_text(encoding="utf-8"))
        self.files.put(".nojekyll", "")
        library = converter()
        key = f"vl-convert {library.__version__}"
        if not self.files.is_current(_VEGA, key):  # bundling takes seconds
            self.files.put(_VEGA, _VEGA_NOTICE + library.javascript_bundle(), key)

    # ---- pairs

    def _write_pair(self, pair: Pair, *, with_pages: bool) -> Any:
        """Write the verdicts of a pair, and `with_pages` a page for each cell that changed; return the verdicts."""
        files, key = self.files, f"{self.data.by_name[pair[1]].key} {with_pages}"
        name = f"data/pairs/{self.data.file_of_pair(pair)}.json"
        if files.is_current(name, key):
            verdicts = files.read_json(name)
            if all(files.is_current(page, key) for page in self._pages_of(pair, verdicts)):
                return verdicts
        changed = self.data.changed_cells(pair)[:_PAGED] if with_pages else []
        verdicts = self.data.pair_json(pair, (one.cell.cell_id for one in changed))
        files.put_json(name, verdicts, key)
        for one in changed:
            self._write_change(pair, one, key)
        return verdicts

    def _pages_of(self, pair: Pair, verdicts: Any) -> list[str]:
        """Return the names of the pages of changed cells of a pair."""
        return [self.data.change_file(pair, cell_id) for cell_id, cell in verdicts["cells"].items() if "p" in cell]

    def _write_change(self, pair: Pair, one: CellComparison, key: str) -> None:
        name, comparison = self.data.change_file(pair, one.cell.cell_id), self.data.comparison(pair)
        link = self.pages.link(name, pair)
        self.pages.put(
            name,
            "change.html.j2",
            title=str(one.cell),
            page="model",
            key=key,
            details=details_of(self.conn, comparison, one),
            sides=pair_lines(comparison, link),
            to_model=self.pages.link(name)("model", **_query_of(one.cell)),
            to_pair=link("compare"),
        )

    # ---- overview

    def _write_overview(self) -> None:
        values: dict[str, Any] = {"nights": self.data.nights, "comparison": None, "side": None, "figure": None}
        link = self.pages.link("index.html")
        if self.data.neighbours and self.data.neighbours[0][1] == self.data.nights[0].name:
            pair = self.data.neighbours[0]
            values |= self._compared(pair)
        elif self.data.nights:
            summary = self.data.summary(self.data.nights[0].name)
            values |= {"side": describe(summary.side, link), "grid": grid(summary.suites, link)}
        values |= {"link": link, "titles": {night.name: night.run.commit_title or "" for night in self.data.nights}}
        sentences = {pair[1]: verdicts["sentence"] for pair, verdicts in self._verdicts.items() if self._is_next(pair)}
        self.pages.put("index.html", "overview.html.j2", title="Overview", page="", sentences=sentences, **values)

    def _is_next(self, pair: Pair) -> bool:
        return self.data.by_name[pair[1]].base == pair[0]

    def _compared(self, pair: Pair) -> dict[str, Any]:
        comparison, link = self.data.comparison(pair), self.pages.link("index.html", pair)
        broke = [*comparison.of(Outcome.BROKE), *comparison.of(Outcome.FLAKY), *comparison.of(Outcome.MISSING)]
        ranked = comparison.ranked_findings((Outcome.REGRESSED, Outcome.IMPROVED))
        note = f"the first {_ROWS} of {len(ranked)}" if len(ranked) > _ROWS else ""
        drawn = changes_figure(comparison, COLORS)
        return {
            "comparison": comparison,
            "answer": answer(comparison, link),
            "counted": compared_sentence(comparison, link),
            "sides": pair_lines(comparison, link),
            "to_pair": link("compare"),
            "grid": grid(comparison.suites, link),
            "broke": _broken(broke[:_ROWS], self.pages.link("index.html")) if broke else "",
            "changed": change_table("Changed most", ranked[:_ROWS], link, note) if ranked else "",
            "dimensions": dimensions(comparison, link),
            "notes": [noise_line(comparison), *comparison.notes],
            "figure": self.pages.figure("changes.json", lambda: drawn) if drawn else None,
            "rule": RULE,
        }

    # ---- commits

    @cached_property
    def _of_commits(self) -> set[Pair]:
        """For each commit the pair that shows its changes: its first night against a night of another commit."""
        first: dict[str, Pair] = {}
        for base, new in self.data.neighbours:  # newest first: the oldest night of a commit stays
            commits = [self.data.by_name[name].run.commit for name in (base, new)]
            if commits[0] != commits[1]:
                first[commits[1]] = (base, new)
        return set(first.values())

    def _write_commits(self) -> None:
        """Write the list of commits, and the pages of commits that no pair of nights shows."""
        rows: dict[str, dict[str, Any]] = {}
        compared = {self.data.by_name[pair[1]].run.commit: pair for pair in self._of_commits}
        for night in self.data.nights:
            commit = night.run.commit
            if commit in rows:
                continue
            pair = compared.get(commit)
            if pair is None:
                self._write_commit(night, None)
            shown = self.data.by_name[pair[1]] if pair else night
            rows[commit] = {"commit": commit, "night": shown, "verdicts": self._verdicts[pair] if pair else None}
        branches = dict.fromkeys(row["night"].run.branch for row in rows.values())
        self.pages.put(
            "commit/index.html",
            "commits.html.j2",
            title="Commits",
            page="commit",
            rows=list(rows.values()),
            branches=list(branches),
            link=self.pages.link("commit/index.html"),
            addresses=as_script(self.pages.commits),
        )

    def _write_commit(self, night: PublishedNight, pair: Pair | None) -> None:
        name = f"{self.pages.commits[night.run.commit]}index.html"
        landed = landed_commits(self.conn, self.data.by_name[night.base].side, night.side) if pair else None
        shown = landed_table(landed) if landed else ""
        key = digest(night.key, pair, str(shown))
        if self.files.is_current(name, key):
            return
        link = self.pages.link(name, pair)
        values: dict[str, Any] = {"facts": commit_facts(night.side), "landed": shown, "pair": pair, "causes": []}
        if pair:
            comparison = self.data.comparison(pair)
            values |= {
                "answer": answer(comparison, link),
                "counted": compared_sentence(comparison, link),
                "sides": pair_lines(comparison, link),
                "to_pair": link("compare"),
                "causes": self._causes(comparison, link),
            }
        title = night.run.commit_title or night.run.commit
        self.pages.put(name, "commit.html.j2", title=title, page="commit", key=key, **values)

    def _causes(self, comparison: Comparison, link: Any) -> list[Any]:
        tables = []
        for cause in causes(self.conn, comparison):
            note = f"the first {_OF_CAUSE}" if len(cause.changes) > _OF_CAUSE else ""
            title = f"{cause.title}: {count(len(cause.changes), 'change')}"
            tables.append(change_table(title[:1].upper() + title[1:], cause.changes[:_OF_CAUSE], link, note))
        return tables

    # ---- records

    def _write_records(self, records: list[Record]) -> None:
        everything = listed(self.conn, with_closed=True)
        link = self.pages.link("regressions/index.html")
        titles = {night.run.commit: night.run.commit_title for night in self.data.nights if night.run.commit_title}
        is_open = [one for one in everything if one.info.is_open]
        closed = [one for one in everything if not one.info.is_open]
        self.pages.put(
            "regressions/index.html",
            "regressions.html.j2",
            title="Regressions",
            page="regressions",
            groups=[commit_records(group, titles, link) for group in by_commit(is_open)],
            closed=record_table("Closed records", closed, link) if closed else "",
            addresses=as_script(self.pages.records),
        )
        for record in records:
            name = f"{self.pages.records[record.info.regression_id]}index.html"
            own = self.pages.link(name)
            self.pages.put(
                name,
                "record.html.j2",
                title=f"Regression of {record.name}",
                page="regressions",
                facts=record_facts(record, own),
                blame=blame_table(record),
                history=history_table(record.info),
                repro=record.repro,
                to_model=own("model", **model_query(record.cell)) if record.cell else "",
            )

    def _write_feed(self, records: list[Listed]) -> None:
        """Write an Atom feed of the nights in which a cell got worse, and of the records."""
        root = f"{self.address}/" if self.address else ""
        link = self.pages.link("feed.xml")
        entries: list[dict[str, Any]] = []
        for pair in self.data.neighbours:
            verdicts, night = self._verdicts[pair], self.data.by_name[pair[1]]
            if any(is_worse(cell) for cell in verdicts["cells"].values()):
                text = "\n".join([verdicts["sentence"], *verdicts["sides"], *verdicts["lines"]])
                where = self.pages.link("feed.xml", pair)("compare")
                entries.append(_entry(f"night/{night.name}", verdicts["sentence"], night.info.started_at, where, text))
        for group in by_commit(records):
            events = [event for one in group.records for event in one.info.events]
            updated = max((event.at for event in events), default=group.records[0].info.opened_at)
            of = link("regressions", record=group.records[0].info.regression_id)
            lines = [f"{one.info.state}: {one.name}, {what_changed(one.info)}" for one in group.records]
            title = f"{group.branch}@{(group.commit or '')[: addresses.SHOWN]}: {group.tally}"
            where = of if len(lines) == 1 else link("regressions")
            name = f"regressions/{group.repo}/{group.branch}/{group.commit}"
            entries.append(_entry(name, title, updated, where, "\n".join(lines)))
        entries.sort(key=lambda entry: (entry["updated"], entry["id"]), reverse=True)
        for entry in entries:
            entry["link"] = root + entry["link"].removeprefix("./")
        newest = entries[0]["updated"] if entries else None
        self.pages.put(
            "feed.xml", "atom.xml.j2", title="", page="", entries=entries[:_ENTRIES], updated=newest, site=root
        )


def _entry(name: str, title: str, updated: Any, link: str, text: str) -> dict[str, Any]:
    return {
        "id": f"tag:inductor-watch,2026:{quote(name)}",
        "title": title,
        "updated": updated,
        "link": link,
        "text": text,
    }


def _query_of(cell: CellName) -> dict[str, str]:
    return {
        "model": f"{cell.suite}/{cell.model}",
        "setting": ",".join(map(str, cell.axes[2:])),
        "config": cell.config_id,
    }


def _broken(cells: list[CellComparison], link: Any) -> Any:
    """Return a table of cells that broke, are missing or flaky, with the reason."""
    rows = [
        (
            anchor(link("model", **_query_of(one.cell)), str(one.cell)),
            status_tag(one.base.status),
            status_tag(one.new.status),
            reason(one.new),
        )
        for one in cells
    ]
    return table("Broke, flaky or missing", ("cell", "base", "new", "reason"), rows)

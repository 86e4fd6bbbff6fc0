"""The pages of a published site, drawn by templates; a page's address is relative to every other one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.elements import outside_links
from analysis.elements.charts import Colors, Figure
from analysis.elements.markup import Link
from analysis.elements.wording import count, moment
from analysis.present import called
from analysis.reports.permalinks import address
from analysis.site.site_data import rounded
from analysis.site.site_files import SiteFiles, digest, file_of
from db.queries.cells import CellName

#: Charts take their colours from the page's style sheet, for light and dark.
COLORS = Colors(tuple(f"var(--line-{number})" for number in range(1, 7)), "var(--base)", "var(--new)", "var(--bad)")
#: What the navigation leads to.
PAGES = {
    "": "Overview",
    "compare": "Compare",
    "model": "Models",
    "trends": "Trends",
    "commit": "Commits",
    "regressions": "Regressions",
}
_TEMPLATES = Path(__file__).parent / "templates"

Query = Mapping[str, Iterable[str]]


class SitePages:
    """Draws pages into the files of a site, and knows their addresses."""

    def __init__(self, files: SiteFiles, cells: Iterable[CellName]) -> None:
        """`cells` are all cells of the site."""
        self.files, self.cells = files, tuple(cells)
        self.models: dict[str, str] = {}
        self._cell_ids: dict[tuple[str, str, str], str] = {}
        self.commits: dict[str, str] = {}
        self.records: dict[str, str] = {}
        for cell in self.cells:
            name = f"{cell.suite}/{cell.model}"
            self.models[name] = f"model/{file_of(cell.suite)}/{file_of(cell.model)}/"
            setting = ",".join(map(str, cell.axes[2:]))
            for config in (cell.config, cell.config_id):
                self._cell_ids[name, setting, config] = cell.cell_id

    def put(self, name: str, template: str, *, title: str, page: str, key: str = "", **values: Any) -> None:
        """Draw a page from a template. `page` is its place in the navigation."""
        root = "../" * name.count("/") or "./"
        text = _environment().get_template(template)
        drawn = text.render(root=root, title=title, page=page, pages=PAGES, moment=moment, count=count, **values)
        self.files.put(name, drawn, key)

    def link(self, name: str, pair: tuple[str, str] | None = None) -> Link:
        """Return what makes addresses for the page of a file; `pair` are the nights that they are about."""
        root = "../" * name.count("/") or "./"
        shared = dict(zip(("base", "new"), pair, strict=True)) if pair else {}

        def make(page: str, **changes: Any) -> str:
            found = {key: _as_list(value) for key, value in (shared | changes).items()}
            query = {key: value for key, value in found.items() if any(value)}
            return root + self._address(page, query)

        return make

    def _address(self, page: str, query: dict[str, list[str]]) -> str:
        if page == "model" and (where := self.models.get(next(iter(query.get("model", ())), ""))):
            named = (query["model"][0], *(next(iter(query.get(key, ())), "") for key in ("setting", "config")))
            cell_id = self._cell_ids.get((named[0], named[1], named[2]), "")
            sides: Query = {key: query[key] for key in ("base", "new") if key in query}
            return address(where, sides) + (f"#c-{cell_id}" if cell_id else "")
        if page == "commit" and (where := self.commits.get(next(iter(query.get("new", ())), "").rpartition("@")[2])):
            return where
        if page == "regressions" and (where := self.records.get(next(iter(query.get("record", ())), ""))):
            return where
        return address(f"{page}/" if page else "", query)

    def figure(self, name: str, draw: Callable[[], Figure], key: str = "") -> dict[str, str]:
        """Write the specification of a chart beside a page, and return what the page's template takes.

        A chart that was made by this key is not drawn again: that takes longer than all else.
        """
        if not (key and self.files.is_current(name, key)):
            figure = draw()
            self.files.put_json(
                name, {**_shortened(figure.chart.to_dict(validate=False)), "description": figure.alt}, key
            )
        return {"file": name.rpartition("/")[2], "words": self.files.read_json(name)["description"]}


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_clean,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(called=called, sha=lambda sha: sha[: outside_links.SHOWN], diff=_diff)
    env.globals.update(outside=outside_links)
    return env


def _clean(value: Any) -> Any:
    """Show control characters of a text as U+FFFD; lines, tabs and spaces stay."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(
        char if char.isprintable() or char in "\n\t" or category(char) == "Zs" else "\N{REPLACEMENT CHARACTER}"
        for char in value
    )


def _diff(text: str) -> Markup:
    """Return a unified diff with its lines marked by what became of them."""
    looks = {"+": "came", "-": "went", "@": "soft"}
    lines = (
        Markup('<span class="{}">{}</span>').format(look, line) if (look := looks.get(line[:1])) else escape(line)
        for line in map(str, map(_clean, text.splitlines()))
    )
    return Markup("\n").join(lines)


def _shortened(value: Any) -> Any:
    """Return a specification with the digits that are published."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return rounded(value) if isinstance(value, float) else value


def _as_list(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def code_version() -> str:
    """Return a hash of what makes the pages: the code of this package, templates, style sheets and scripts."""
    root = Path(__file__).parents[1]
    kinds = {".py", ".j2", ".css", ".js"}
    return digest(*(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*")) if path.suffix in kinds))


def as_script(value: Any) -> str:
    """Return a value as JSON that may stand in a page."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")

"""Shared parts of pages: the style sheet, HTML and charts, widgets that show the address, the pickers at the left, files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import streamlit as st
from markupsafe import Markup
from sqlalchemy import Engine

from analysis.elements.addresses import fixed_side
from analysis.elements.charts import COLORS, PICK, Colors, Figure
from analysis.elements.wording import anchor, joined, moment, paragraph, span
from analysis.reports.facts import Report, build_report
from analysis.reports.html_report import PictureError, converter, html, png, svg
from analysis.reports.html_report import draw as draw_text
from dashboard import url
from dashboard.data import Data
from dashboard.url import DEFAULTS, LATEST, NOTHING, PREVIOUS, Selection, remembered
from db.nights import NightInfo, RunInfo, describe_places
from db.queries.cells import CellFilter
from db.queries.sides import Side
from db.store_errors import SideError

_TABLES = (files("analysis.elements") / "tables.css").read_text(encoding="utf-8")
SHEET = f"""
<style>
[data-testid="stMainBlockContainer"] {{ padding: 2.2rem 2.2rem 4rem; max-width: 110rem; }}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p {{ opacity: 1;
  color: color-mix(in srgb, var(--st-text-color) 80%, var(--st-background-color)); }}
[data-testid="stMultiSelect"] [data-tag] {{ background-color: var(--st-secondary-background-color) !important;
  border: 1px solid color-mix(in srgb, var(--st-text-color) 30%, transparent) !important; }}
[data-testid="stMultiSelect"] [data-tag], [data-testid="stMultiSelect"] [data-tag] * {{ color: var(--st-text-color) !important; }}
[data-testid="stSelectboxVirtualDropdown"]:has(:is([aria-label="Base"], [aria-label="New"])) {{
  width: min(58rem, calc(100vw - 2rem)) !important; max-width: none !important; }}
[data-testid="stMain"]:has(.iw-verdict) :is(.st-key-at-once, [data-testid="stLayoutWrapper"]:has(> .st-key-at-once)) {{
  display: none; }}
{_TABLES}@media (max-width: 640px) {{
  [data-testid="stMainBlockContainer"] {{ padding: 4.2rem 1rem 3rem; }}  /* below the header that holds the menu */
  .st-key-intervals [data-testid="stVerticalBlock"] {{ overflow-x: auto; }}
  .st-key-intervals [data-testid="stVegaLiteChart"] {{ min-width: 32rem; }}
}}
</style>
"""


def colors() -> Colors:
    """Return the colours of the page as the reader's browser shows it now."""
    return COLORS["dark" if st.context.theme.type == "dark" else "light"]


#: Characters with a meaning in Markdown, Streamlit's colours, icons and formulas included.
_MARKDOWN = frozenset(r"\`*_{}[]()<>#+-.!|~$:&")


def markdown(name: str) -> str:
    """Return a name as Markdown that shows it as it is."""
    return "".join(f"\\{char}" if char in _MARKDOWN else char for char in name)


def show_figures(figures: Sequence[Figure], columns: int = 2) -> list[str]:
    """Draw the charts in so many columns, one alone over the whole width, and return the names that were clicked."""
    places = st.columns(columns) if columns > 1 and len(figures) > 1 else [st.container()]
    names: list[str] = []
    for number, figure in enumerate(figures):
        picking: dict[str, Any] = {"on_select": "rerun", "selection_mode": PICK} if figure.picks else {}
        where = places[number % len(places)]
        event = where.altair_chart(figure.chart, key=figure.key, alt=figure.alt, **picking)
        names += [one["name"] for one in event.selection.get(PICK, ())] if figure.picks else []
    return list(dict.fromkeys(names))


def draw(*parts: str) -> None:
    """Draw HTML that the style sheet applies to."""
    st.html(Markup('<div class="iw">{}</div>').format(joined("", parts)))


def soft(*parts: str) -> None:
    """Draw a paragraph in a softer colour, each of its parts on a line."""
    draw(paragraph("soft", *parts))


def alert(*messages: str) -> None:
    """Draw each message so that a screen reader reads it out at once."""
    for message in messages:
        st.html(Markup('<div class="iw iw-state" role="alert">{}</div>').format(message))


_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def select(
    key: str,
    title: str,
    options: Sequence[str],
    value: str | None,
    *,
    default: str = "",
    names: Mapping[str, str] = _NO_NAMES,
    where: Any = st,
) -> None:
    """Draw a box of which one option is picked; `default` is no entry in the address, `names` has the shown names of options."""
    where.selectbox(
        title,
        options,
        format_func=lambda option: names.get(option, option),
        key=url.bind(key, value),
        on_change=url.changed,
        args=(key, default),
    )


def select_many(
    key: str,
    title: str,
    options: Iterable[str],
    value: Sequence[str],
    *,
    names: Mapping[str, str] = _NO_NAMES,
    most: int | None = None,
    placeholder: str = "all",
    where: Any = st,
    default: Sequence[str] = (),
) -> None:
    """Draw a box of which several options are picked, at most `most`."""
    where.multiselect(
        title,
        list(options),
        format_func=lambda option: names.get(option, option),
        key=url.bind(key, list(value)),
        on_change=url.changed,
        args=(key, list(default)),
        max_selections=most,
        placeholder=placeholder,
    )


def switch(key: str, title: str, on: str = "1", *, where: Any = st) -> bool:
    """Draw a toggle that writes `on` to the address or takes the key away, and return whether it is on."""
    where.toggle(title, key=url.bind(key, url.get(key) == on), on_change=_switched, args=(key, on))
    return url.get(key) == on


def segments(key: str, title: str, names: Mapping[str, str], value: str, default: str = "") -> None:
    """Draw options beside each other, of which one is picked; the title is for screen readers."""
    st.segmented_control(
        title,
        list(names),
        format_func=lambda option: names[option],
        key=url.bind(key, value),
        on_change=url.changed,
        args=(key, default),
        required=True,
        label_visibility="collapsed",
    )


def ways(where: Any, picked: Sequence[str], labels: Mapping[str, str], link: Callable[..., str], what: str) -> None:
    """Draw links for the clicked names: to the last one, and to the comparison of the last two, the first of `labels` as base.

    `labels` are of all names, in their order; `link` makes an address from `base` and `new`; `what` is the word for a point.
    """
    named = [name for name in dict.fromkeys(picked) if name in labels][-2:]
    if not named:
        where.caption(f"Click a point to open its {what}, and a second one to compare the two.")
        return
    links = [anchor(link(base="", new=named[-1]), f"Open this {what}")]
    if len(named) == 2:
        base, new = sorted(named, key=list(labels).index)
        links.insert(0, anchor(link(base=base, new=new), "Compare these two"))
    with where:
        draw(
            paragraph(
                "iw-ways",
                joined(" ", [*links, span("soft", " and ".join(f"{labels[name]} ({name})" for name in named))]),
            )
        )


def known(key: str, options: Iterable[str], default: str) -> str:
    """Return the address's value, if it is one of `options`; else the default, with a message about any other value."""
    return next(iter(known_many(key, options)), default)


def known_many(key: str, options: Iterable[str], wanted: Sequence[str] | None = None) -> list[str]:
    """Return the address's values (or `wanted`) that are among `options`, and draw a message for each other one."""
    wanted, options = url.get_all(key) if wanted is None else wanted, list(options)
    alert(*(url.not_known(key, name, options) for name in wanted if name not in options))
    return [name for name in wanted if name in options]


def _switched(key: str, on: str) -> None:
    url.put(key, on if st.session_state[url.widget(key)] else None)


_HTML = '<button type="button"></button> <span role="status"></span>'
_CSS = """
button { font: inherit; font-size: .875rem; color: inherit; background: transparent; cursor: pointer; white-space: nowrap;
  border: 1px solid color-mix(in srgb, var(--st-text-color) 45%, transparent); border-radius: .5rem; padding: .3rem .75rem; }
button:hover, button:focus-visible { border-color: var(--st-text-color); }
button:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
span { font-size: .875rem; }
"""
#: The clipboard is there only on https and on this machine. Elsewhere the text is shown, selected, to be copied by hand.
_JS = """
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector("button"), said = parentElement.querySelector("span");
  button.textContent = data.label;
  button.title = data.title;
  said.textContent = "";
  button.onclick = async () => {
    const text = data.text || new URL(data.query, window.location.href).href;
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = data.copied;
    } catch {
      const box = Object.assign(document.createElement("input"), { value: text, readOnly: true, size: 40 });
      box.setAttribute("aria-label", `${data.label}: text to copy`);
      said.replaceChildren(box);
      box.select();
    }
  };
}
"""
_button = st.components.v2.component("copy_text", html=_HTML, css=_CSS, js=_JS)
_HELP = (
    "The link names base and new as they are shown now: a night or a run stays as it is, a commit takes in further runs of it. "
    "In the browser's own address, latest, previous and a branch follow newer runs."
)
_COPIED = "Copied. Newer nights do not change what it shows."


def button(key: str, label: str, copied: str, *, text: str = "", query: str = "", title: str = "") -> None:
    """Draw a button that copies `text`, or this page's address with that query, and then says `copied`."""
    data = {"label": label, "copied": copied, "text": text, "query": query, "title": title}
    _button(key=key, data=data, width="content")


def title(text: str) -> None:
    """Draw the title of a page with *Copy link* beside it; `text` is Markdown."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.title(text, anchor=False, width="content")
        button("copy_link", "Copy link", _COPIED, query=frozen_query(), title=_HELP)


def frozen_query() -> str:
    """Return the query of this page with both sides spelled out, so that it means the same tomorrow."""
    query = {key: url.get_all(key) for key in st.query_params}
    if selection := remembered():
        base = fixed_side(selection.base) if selection.base else NOTHING
        query |= {"base": [base], "new": [fixed_side(selection.new)]}
    return url.address("", query) or "?"


Build = Callable[[], Report]
_TITLES = {"changes": "what changed", "suites": "the suites"}
_KINDS = {"SVG": "image/svg+xml", "PNG": "image/png"}


def download(label: str, make: Callable[[], bytes], name: str, mime: str, *, key: str, help: str | None = None) -> None:
    """Draw a button that makes its file once it is pressed."""
    st.download_button(
        label, make, name, mime, key=key, help=help, on_click="ignore", icon=":material/download:", type="tertiary"
    )


def file_name(words: str) -> str:
    """Return a text as a file's name: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:120] or "file"


def offer_report(selection: Selection, filters: CellFilter, configs: tuple[str, str] | None = None) -> None:
    """Draw a popover with the report and its pictures, of two sides or of two configs (base, new) of the new one."""
    if selection.base is None and configs is None:
        return
    menu = st.popover("Export report and charts", icon=":material/ios_share:", key="downloads", on_change="rerun")
    if not menu.open:
        return
    new = fixed_side(selection.new)
    base = fixed_side(selection.base) if selection.base else new
    build = partial(_built, selection.data.engine, base, new, filters, configs, dashboard_address(st.context.url or ""))
    name = file_name(" ".join([*configs, new] if configs else [base, new]))
    with menu:
        st.caption(
            "Of all cells under the filters at the left and the configs chosen here, whatever else narrows the table."
        )
        download(
            "Report, one HTML file",
            lambda: html(build()).encode(errors="replace"),
            f"{name}.html",
            "text/html",
            key="report_html",
            help="Verdict, evidence, suites, environment and what to measure again; it loads nothing from anywhere.",
        )
        try:
            converter()
        except PictureError as error:
            st.caption(f"{error}.")
            return
        for chart, title in _TITLES.items():
            with st.container(horizontal=True):
                for kind, mime in _KINDS.items():
                    make, label = partial(_picture, build, chart, kind), f"{kind} of {title}"
                    download(label, make, f"{name}-{chart}.{kind.lower()}", mime, key=label)


def dashboard_address(page: str) -> str:
    """Return the dashboard's own address, from the address of its compare page."""
    return page.partition("?")[0].rstrip("/").removesuffix("/compare")


def _picture(build: Build, chart: str, kind: str) -> bytes:
    report = build()
    none = "There is no change for this picture to show."
    drawn = svg(report, chart) or draw_text(report.sentence, [none], [], [], [])
    return png(drawn) if kind == "PNG" else drawn.encode()


def _built(
    engine: Engine, base: str, new: str, filters: CellFilter, configs: tuple[str, str] | None, place: str
) -> Report:
    with engine.connect() as connection:
        return build_report(connection, base, new, filters, place, configs)


#: Letters of a commit's title; its end has the number of its pull request.
_TITLE = 64


def label(name: str, runs: Sequence[RunInfo]) -> str:
    """Return a night or a run on one line: its start, commit, devices, label and name."""
    newest = runs[0]
    place = describe_places(run.testbed for run in runs) or newest.testbed_id
    parts = [moment(newest.started_at), *commit_words(newest), place, newest.label, name]
    return " · ".join(part for part in parts if part)


def commit_words(run: RunInfo) -> list[str]:
    """Return words for the commit of a run: digits of its sha, release, branch, and title.

    A long title is shortened before the number of its pull request.
    """
    title = " ".join((run.commit_title or "").split())
    if len(title) > _TITLE:
        head, _, tail = title.rpartition(" (#")
        tail = f" (#{tail}" if head else ""
        title = f"{title[: _TITLE - len(tail) - 1]}\N{HORIZONTAL ELLIPSIS}{tail}"
    return [part for part in (run.commit[:10], run.release, run.branch, title) if part]


FILL = """\
inductor-watch nightly        # measure this machine's zoo and store it
inductor-watch ingest FOLDER  # or read bundles, such as data/nights of a checkout"""


def show_nothing(title: str, sentence: str, commands: str = "") -> None:
    """Draw a calm box, with commands to copy below it if there are any."""
    box = Markup('<div class="iw iw-state" role="status"><h1>{}</h1>{}</div>')
    st.html(box.format(title, sentence))
    if commands:
        # Highlighted words are too faint for some, and a box that scrolls cannot be reached by the keyboard.
        st.code(commands, language=None, wrap_lines=True)


def link_neighbours(side: Side, nights: Sequence[NightInfo], page: str, key: str = "new", **changes: str) -> None:
    """Draw links to the nearest of `nights` (newest first), which have what a side lacks; nothing where there are none.

    The links open `page`, with the night under `key` of the address, and with `changes`. The side's own nights are left out.
    """
    others = [night for night in nights if not {run.run_id for run in night.runs} & set(side.run_ids)]
    at = side.runs[0].started_at
    nearest = [
        *[("next", night) for night in others if night.started_at > at][-1:],
        *[("previous", night) for night in others if night.started_at <= at][:1],
    ]
    if others and others[0] not in [night for _, night in nearest]:
        nearest.insert(0, ("newest", others[0]))
    links = []
    for word, night in nearest:
        words = " · ".join([moment(night.started_at), *commit_words(night.runs[0])[:3], night.place])
        links.append(Markup("{}: {}").format(word, anchor(url.link(page, **{key: night.night}, **changes), words)))
    if links:
        draw(paragraph("iw-links", joined(" ", ["Nights that have it, the", joined("; the ", links)])))


#: The newest nights whose single runs and commits are offered too, and the newest nights that are offered: the browser handles
#: every option with every run of the script. Older nights are found by typing.
_NEWEST, _OFFERED = 30, 60
_PICKER_HELP = (
    "Pick a night, branch, commit or run: type a part of its sha, title, pull request, date, device or label. Anything older "
    "than what is listed: a commit (six digits or more), branch@commit, latest~2, the id of a night or run."
)


def pickers(data: Data) -> None:
    """Draw the choice of sides and filters; it is read back from the address."""
    nights = data.nights()
    labels = _choices(nights, data.revision) | {LATEST: "latest night", PREVIOUS: "previous night", NOTHING: "none"}
    hidden = {LATEST, PREVIOUS, NOTHING, *(night.night for night in nights[_OFFERED:])}
    offered = [name for name in labels if name not in hidden]
    _side(data, "base", [PREVIOUS, NOTHING, *offered], labels)
    st.button("Swap base and new", icon=":material/swap_vert:", key="swap", on_click=_swap, width="stretch")
    _side(data, "new", [LATEST, *offered], labels)
    axes, columns = data.axes(), st.columns(2, gap="small")
    filters = {"phase": axes.phases, "dtype": axes.dtypes, "device": axes.devices, "suite": axes.suites}
    for place, (key, names) in enumerate(filters.items()):
        value = url.get(key) if url.get(key) in names else ""
        title = key if key == "dtype" else key.capitalize()
        select(key, title, ["", *names], value, names={"": "all"}, where=columns[place % 2])
    configs = list(dict.fromkeys(info.name for info in axes.configs))
    select_many("configs", "Configs", configs, [name for name in url.get_all("configs") if name in configs])


@st.cache_resource(show_spinner=False, max_entries=4)
def _choices(_nights: list[NightInfo], revision: str) -> dict[str, str]:
    """Return the texts that can be picked, with the words that are shown and searched for each.

    Branches come first, then nights, newest first, then the runs of nights with several runs. A commit of several nights stands
    before the newest of them.
    """
    nights_of = Counter((night.runs[0].branch, night.runs[0].commit) for night in _nights)
    choices = {run.branch: f"branch {run.branch}: its newest commit" for night in _nights for run in night.runs}
    for place, night in enumerate(_nights):
        run = night.runs[0]
        times = nights_of[run.branch, run.commit]
        if place < _NEWEST and times > 1:
            words = " · ".join([*commit_words(run), f"all {times} nights of it"])
            choices.setdefault(f"{run.branch}@{run.commit}", words)
        choices[night.night] = label(night.night, night.runs)
    runs = [run for night in _nights[:_NEWEST] if len(night.runs) > 1 for run in night.runs]
    return choices | {run.run_id: label(run.run_id, [run]) for run in runs}


def _side(data: Data, key: str, options: Sequence[str], labels: dict[str, str]) -> None:
    value = url.get(key) or DEFAULTS[key]
    st.selectbox(
        key.capitalize(),
        options if value in options else [*options, value],
        format_func=lambda option: labels.get(option, option),
        key=url.bind(key, value),
        on_change=_chosen,
        args=(data, key),
        accept_new_options=True,
        help=_PICKER_HELP,
    )


def _chosen(data: Data, key: str) -> None:
    """Write the picked or typed side to the address; a text that names no side may be a part of a side's words."""
    value = st.session_state[url.widget(key)]
    url.put(key, None if value == DEFAULTS[key] else found_side(data, value))


def found_side(data: Data, wanted: str) -> str:
    """Return the side that a typed text means: the text itself if it names a side, else the only night or commit with such words.

    The words are those of the pickers, such as title, date or label. A text that means neither is returned as it is: the page
    says so.
    """
    if wanted in (LATEST, PREVIOUS, NOTHING):
        return wanted
    try:
        data.side(wanted)
    except SideError:
        part = wanted.casefold().strip()
        labels = _choices(data.nights(), data.revision)
        nights = [night for night in data.nights() if part and part in labels[night.night].casefold()]
        commits = {f"{run.branch}@{run.commit}" for night in nights for run in night.runs}
        if len(nights) == 1:
            return nights[0].night
        return commits.pop() if len(commits) == 1 else wanted
    return wanted


def _swap() -> None:
    """Swap the sides by their fixed names: `latest` and `previous` would mean something else on the other side."""
    selection = remembered()
    if selection is not None and selection.base is not None:
        url.put("base", fixed_side(selection.new))
        url.put("new", fixed_side(selection.base))

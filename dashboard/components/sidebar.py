"""Sides in words, the pickers that every page shares, and what a page says when there is nothing to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from analysis.elements.addresses import fixed_side
from analysis.elements.wording import anchor, joined, moment, paragraph
from dashboard import url
from dashboard.components.widgets import draw, select, select_many
from dashboard.data import Data
from dashboard.url import DEFAULTS, LATEST, NOTHING, PREVIOUS, remembered
from db.nights import NightInfo, RunInfo, describe_places
from db.queries.sides import Side
from db.store_errors import SideError

#: Letters of a commit's title; its end has the number of its pull request.
_TITLE = 64


def label(name: str, runs: Sequence[RunInfo]) -> str:
    """A night or a run on one line: when, what, on which devices, and what its label says."""
    newest = runs[0]
    place = describe_places(run.testbed for run in runs) or newest.testbed_id
    parts = [moment(newest.started_at), *commit_words(newest), place, newest.label, name]
    return " · ".join(part for part in parts if part)


def commit_words(run: RunInfo) -> list[str]:
    """The commit of a run: digits of its sha, release, branch, and title, shortened before the number of its pull request."""
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
    """A calm box; the commands, if any, below it to copy."""
    box = Markup('<div class="iw iw-state" role="status"><h1>{}</h1>{}</div>')
    st.html(box.format(title, sentence))
    if commands:
        # Highlighted words are too faint for some, and a box that scrolls cannot be reached by the keyboard.
        st.code(commands, language=None, wrap_lines=True)


def link_neighbours(side: Side, nights: Sequence[NightInfo], page: str, key: str = "new", **changes: str) -> None:
    """Links to the nights nearest to a side, of those (newest first) that have what it lacks; nothing where none has.

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


#: Nights whose single runs and commits are offered too, and nights that are offered: the browser handles every option with
#: every run of the script. Older ones are found by what is typed.
_NEWEST, _OFFERED = 30, 60
_HELP = (
    "Pick a night, branch, commit or run: type a part of its sha, title, pull request, date, device or label. Anything older "
    "than what is listed: a commit (six digits or more), branch@commit, latest~2, the id of a night or run."
)


def pickers(data: Data) -> None:
    """Draws the choice of sides and filters; it is read back from the address."""
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
    """What can be picked, and what is shown and searched of it: branches, nights newest first, then runs of several-run nights.

    A commit of several nights stands before the newest of them.
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
        help=_HELP,
    )


def _chosen(data: Data, key: str) -> None:
    """Writes what was picked or typed to the address; a text that names no side may be a part of what one is called."""
    value = st.session_state[url.widget(key)]
    url.put(key, None if value == DEFAULTS[key] else found_side(data, value))


def found_side(data: Data, wanted: str) -> str:
    """What a typed text means: itself if it names a side, else the only commit that is listed with such a title, date or label.

    A text that means neither is left as it is: the page says so.
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
    """Swaps the sides by their fixed names: `latest` and `previous` would mean something else on the other side."""
    selection = remembered()
    if selection is not None and selection.base is not None:
        url.put("base", fixed_side(selection.new))
        url.put("new", fixed_side(selection.base))

"""The pickers that every page shares: two sides, and what cells to look at."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from analysis.permalinks import fixed_side as fixed
from dashboard import url
from dashboard.data import Data
from dashboard.formats import moment
from dashboard.selection import DEFAULTS, LATEST, NOTHING, PREVIOUS, Selection, remembered
from db.runs import RunInfo, describe_places, device_name
from db.sides import Side

_ALL = ""


def pickers(data: Data) -> None:
    """Draws the choice of sides and filters; it is read back from the address."""
    nights = data.nights()
    runs = [run for night in nights for run in night.runs]
    labels = {run.run_id: label(run.run_id, [run]) for run in runs}
    labels |= {night.night: label(night.night, night.runs) for night in nights}
    branches = list(dict.fromkeys(run.branch for run in runs))
    labels |= {branch: f"branch {branch}: its newest commit" for branch in branches}
    names = [night.night for night in nights]
    _side("base", "Base", [PREVIOUS, NOTHING, *branches, *names], labels)
    st.button("Swap base and new", icon=":material/swap_vert:", key="swap", on_click=_swap, width="stretch")
    _side("new", "New", [LATEST, *branches, *names], labels)
    axes = data.axes()
    columns = st.columns(2, gap="small")
    _filter(columns[0], "phase", axes.phases)
    _filter(columns[1], "dtype", axes.dtypes)
    _filter(columns[0], "device", axes.devices)
    _filter(columns[1], "suite", axes.suites)


def permalink(selection: Selection) -> None:
    """The address of this page with both sides spelled out, so that it means the same tomorrow."""
    sides = {"new": fixed(selection.new), "base": fixed(selection.base) if selection.base else NOTHING}
    now = {key: url.get_all(key) for key in st.query_params}
    query = now | {key: [text] for key, text in sides.items()}
    with st.expander("Permalink", icon=":material/link:"):
        place = (st.context.url or "").partition("?")[0]
        st.code(url.address(place, query), language=None, wrap_lines=True)
        st.caption("Both sides are spelled out in it: it shows the same comparison after newer runs have come in.")


def label(name: str, runs: Sequence[RunInfo]) -> str:
    """A night or a run on one line: when, what, on which devices, and what its label says."""
    newest = runs[0]
    place = describe_places(run.testbed for run in runs) or newest.testbed_id
    parts = [moment(newest.started_at), f"{newest.branch}@{newest.commit[:10]}", place, newest.label, name]
    return " · ".join(part for part in parts if part)


def describe(side: Side) -> str:
    """A side in a few words: when its newest run started, what it is of and what its labels say."""
    labels = dict.fromkeys(run.label for run in side.runs if run.label)
    devices = dict.fromkeys(device_name(run.testbed) or run.testbed_id for run in side.runs)
    return " · ".join([side.title, f"{moment(side.runs[0].started_at)} UTC", *devices, *labels])


def _side(key: str, title: str, options: Sequence[str], labels: dict[str, str]) -> None:
    labels = labels | {
        LATEST: "latest night",
        PREVIOUS: "previous night",
        NOTHING: "none",
    }
    default = DEFAULTS[key]
    value = url.get(key) or default
    st.selectbox(
        title,
        options if value in options else [*options, value],
        format_func=lambda option: labels.get(option, option),
        key=url.bind(key, value),
        on_change=url.changed,
        args=(key, default),
        accept_new_options=True,
        help="Pick a night or branch, or type a commit (six digits or more), branch@commit, latest~2 or the id of a run "
        "(a night on several GPUs has one for each).",
    )


def _filter(where: st.delta_generator.DeltaGenerator, key: str, names: Sequence[str]) -> None:
    wanted = url.get(key)
    where.selectbox(
        key.capitalize() if key != "dtype" else "dtype",
        [_ALL, *names],
        format_func=lambda option: option or "all",
        key=url.bind(key, wanted if wanted in names else _ALL),
        on_change=url.changed,
        args=(key,),
    )


def _swap() -> None:
    """Resolved first: `latest` and `previous` would mean something else on the other side."""
    selection = remembered()
    if selection is not None and selection.base is not None:
        url.put("base", fixed(selection.new))
        url.put("new", fixed(selection.base))

"""Which model, setting and configs the model page shows, and the two measurements that it sets side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from analysis.reports.permalinks import fixed_side as fixed
from collector.vocabulary import Cell
from dashboard import url
from dashboard.components import code_host
from dashboard.components import empty_states as states
from dashboard.components.formats import moment
from dashboard.components.markup import block, markdown, text
from dashboard.selection import Selection
from db.errors import nearest, one_line
from db.queries.cells import MeasurementInfo, cell
from db.queries.filters import EVERYTHING
from db.queries.sides import Side

#: More lines than this are not told apart.
MOST_CONFIGS = 6


@dataclass(frozen=True, slots=True)
class Choice:
    """A model in one setting (phase, dtype, device, batch size), and configs, the first of which is looked at closely."""

    suite: str
    model: str
    setting: tuple[str, str, str, int]
    configs: tuple[str, ...]
    across_configs: bool
    history: pd.DataFrame


@dataclass(frozen=True, slots=True)
class Half:
    """One of two measurements side by side. `found` is None where the cell is missing or not planned (`why` says which)."""

    role: str
    title: str
    side: Side
    cell: Cell | None
    found: MeasurementInfo | None
    why: str = ""


def choose(selection: Selection) -> Choice | None:
    """Draws the pickers; None, and a sentence, where the address names no such model."""
    models = [f"{model.suite}/{model.name}" for model in selection.data.axes().models]
    wanted = url.get("model") or _first_model(selection, models)
    if wanted not in models:
        st.title("Model", anchor=False)
        _select(st, "model", "Model", models, None)
        states.show("There is no such model", f"No stored cell has {one_line(wanted)!r}{nearest(wanted, models)}.")
        return None
    suite, _, model = wanted.partition("/")
    st.title(markdown(model), anchor=False)
    st.html(block(f'<p class="soft">{text(suite)}</p>'))
    columns = st.columns([2, 2, 3])
    _select(columns[0], "model", "Model", models, wanted)
    history = selection.data.history(suite, model)
    settings = _settings(history)
    setting = _known("setting", list(settings), _first_setting(selection, history, list(settings)))
    _select(
        columns[1], "setting", "Setting", list(settings), setting, names={k: _spell(v) for k, v in settings.items()}
    )
    of_setting = history[_in_setting(history, settings[setting])]
    configs = _configs(selection, columns[2], of_setting)
    return Choice(suite, model, settings[setting], tuple(configs), _across(configs), of_setting)


def sides(selection: Selection, choice: Choice) -> list[Half]:
    """One or two halves: base and new of one config, or two configs of the new side."""
    if choice.across_configs:
        return [
            _half(selection, selection.new, choice, config, config, role)
            for config, role in zip(choice.configs, ("base", "new"), strict=False)
        ]
    found = (
        [] if selection.base is None else [_half(selection, selection.base, choice, choice.configs[0], "base", "base")]
    )
    return [*found, _half(selection, selection.new, choice, choice.configs[0], "new", "new")]


def _half(selection: Selection, side: Side, choice: Choice, config: str, title: str, role: str) -> Half:
    # All cells of the side: read once for all models, and by other pages too.
    rows = selection.data.summary(fixed(side), EVERYTHING).cells
    rows = rows[(rows["model"] == choice.model) & (rows["suite"] == choice.suite) & (rows["config"] == config)]
    rows = rows[_in_setting(rows, choice.setting)]
    known = choice.history["cell_id"][choice.history["config"] == config]
    info = cell(selection.data.engine, str(known.iloc[0])) if len(known) else None
    which = info.as_cell() if info else None
    if rows.empty:
        return Half(role, title, side, which, None, "not planned")
    row = rows.iloc[0]
    if not isinstance(row["run_id"], str):
        return Half(role, title, side, which, None, "missing")
    return Half(role, title, side, which, selection.data.measurement(row["run_id"], row["cell_id"]))


def _first_model(selection: Selection, models: Sequence[str]) -> str:
    """One that the new side measured, so that there is something to see."""
    cells = selection.data.summary(fixed(selection.new), selection.filters).cells
    measured = cells[cells["status"].notna()]
    return f"{measured.iloc[0]['suite']}/{measured.iloc[0]['model']}" if len(measured) else models[0]


def _settings(history: pd.DataFrame) -> dict[str, tuple[str, str, str, int]]:
    kinds = history[["phase", "dtype", "device", "batch_size"]].drop_duplicates().itertuples(index=False)
    found = sorted((str(phase), str(dtype), str(device), int(batch)) for phase, dtype, device, batch in kinds)
    return {",".join(map(str, setting)): setting for setting in found}


def _spell(setting: tuple[str, str, str, int]) -> str:
    return f"{setting[0]}, {setting[1]}, {setting[2]}, batch {setting[3]}"


def _in_setting(rows: pd.DataFrame, setting: tuple[str, str, str, int]) -> pd.Series:
    phase, dtype, device, batch = setting
    return (
        (rows["phase"] == phase) & (rows["dtype"] == dtype) & (rows["device"] == device) & (rows["batch_size"] == batch)
    )


def _first_setting(selection: Selection, history: pd.DataFrame, settings: list[str]) -> str:
    """One that the new side has."""
    rows = history[history["run_id"].isin(selection.new.run_ids)]
    return next(iter(_settings(rows)), settings[0])


def _configs(selection: Selection, where: Any, history: pd.DataFrame) -> list[str]:
    names = sorted(history["config"].unique())
    in_new = history[history["run_id"].isin(selection.new.run_ids) & history["status"].notna()]
    wanted = [name for name in url.get_all("config") if _said(name in names, "config", name, names)]
    chosen = wanted[:MOST_CONFIGS] or [str(in_new.iloc[0]["config"]) if len(in_new) else names[0]]
    where.multiselect(
        "Configs (the first is looked at closely)",
        names,
        key=url.bind("config", chosen),
        on_change=url.changed,
        args=("config",),
        max_selections=MOST_CONFIGS,
    )
    return chosen


def _across(configs: Sequence[str]) -> bool:
    """Draws the choice between two sides and two configs, where there are two configs."""
    if len(configs) < 2:
        return False
    first, second = markdown(configs[0]), markdown(configs[1])
    titles = {"": f"{first}, base against new", "configs": f"{first} against {second}, new side"}
    st.segmented_control(
        "Side by side",
        ["", "configs"],
        format_func=lambda option: titles[option],
        key=url.bind("versus", "configs" if url.get("versus") == "configs" else ""),
        on_change=url.changed,
        args=("versus",),
        required=True,
        label_visibility="collapsed",
    )
    return url.get("versus") == "configs"


def _known(key: str, names: list[str], default: str) -> str:
    wanted = url.get(key)
    return wanted if wanted and _said(wanted in names, key, wanted, names) else default


def _said(is_known: bool, key: str, wanted: str, names: Sequence[str]) -> bool:
    if not is_known:
        line = f"This model has no {key} {one_line(wanted)!r}{nearest(wanted, names)}. Another one is shown."
        st.html(block(f'<p class="iw-state" role="alert">{text(line)}</p>'))
    return is_known


def _select(
    where: Any, key: str, title: str, options: list[str], value: str | None, names: dict[str, str] | None = None
) -> None:
    where.selectbox(
        title,
        options,
        format_func=lambda option: (names or {}).get(option, option),
        key=url.bind(key, value),
        on_change=url.changed,
        args=(key,),
    )


def started(half: Half) -> str:
    """When the half was measured, of which commit and in which run, as HTML; empty where it was not."""
    if half.found is None:
        return ""
    run = next((run for run in half.side.runs if run.run_id == half.found.run_id), None)
    of = f"{text(run.branch)}@{code_host.commit(run.repo, run.commit)}, " if run else ""
    return f"{text(moment(half.found.started_at))} UTC, {of}run {text(half.found.run_id)}"

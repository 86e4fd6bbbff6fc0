"""Trends, runs and the page about the numbers, on stores of synthetic runs."""

import json
from datetime import UTC, date, datetime
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from analysis.elements import wording
from analysis.history.suite_levels import joined, paired, steps
from dashboard.views.runs_page import coverage_table, silent_days
from tests.analysis.compare import cells
from tests.dashboard import stores
from tests.dashboard.conftest import plain, ran, text_of

NAN = float("nan")


def test_runs_tell_what_is_missing_and_when_a_night_was_cut(open_app, tmp_path):
    cells = stores.cells()
    whole = stores.night(tmp_path, "whole", minutes=0, cells=cells)
    measured = [stores.measure(61)(which) for which in cells[:5]]
    cut = stores.write_bundle(tmp_path, stores.header("cut", minutes=60), measured, planned=cells, closed=False)
    said = text_of(open_app(stores.store(tmp_path / "store.db", [whole, cut]), "runs"))
    assert "1 of 1 runs cut off or still running" in said
    assert f'<span class="tag missing">{len(cells) - 5}</span>' in said
    assert "complete" in said


def test_days_without_a_night_are_told_where_one_is_due_each_day():
    def nights(*days, branch="main"):
        runs = (SimpleNamespace(branch=branch),)
        return [SimpleNamespace(started_at=datetime(2026, 7, day, 3, tzinfo=UTC), runs=runs) for day in days]

    found = silent_days(nights(1, 2, 3, 4, 7, 8), "main", date(2026, 7, 10))
    assert found == [date(2026, 7, 9), date(2026, 7, 6), date(2026, 7, 5)]
    for days, branch in (((), "main"), ((1, 5, 9, 13, 20), "main"), ((1, 2, 3, 4), "other")):
        assert silent_days(nights(*days, branch=branch), "main", date(2026, 7, 30)) == [], days


def test_coverage_counts_what_was_planned_and_never_shows_a_zero_for_it():
    ended = [("timm", "a", status) for status in ("pass", None, "fail_to_compile", "unavailable")]
    states = [
        cells.state(cells.name(suite=suite, config=config), status)
        for suite, config, status in [*ended, ("huggingface", "b", "pass")]
    ]
    found = coverage_table(states, "inference")
    assert "3 of 4" in found and "1 failed" in found and "1 missing" in found and "1 not applicable" in found
    assert found.count("not planned") == 2


def test_a_share_is_never_rounded_up_to_all():
    assert (wording.share(1799, 1800), wording.share(0, 0)) == ("99\u202f%", wording.ABSENT)


def history(values, models=3, config="triton", night=None):
    """The rows of one line of the history, a run a day."""
    places = range(len(values))
    rows = pd.DataFrame({"run": places, "order": places, "speedup": values, "n_speedup": models})
    rows["started_at"] = pd.date_range("2026-07-01", periods=len(values), tz="UTC")
    rows["run_id"], rows["commit"] = [f"r{place}" for place in places], [f"{place:040x}" for place in places]
    rows["night"] = rows["point"] = [night or f"n{place}" for place in places]
    rows["config"] = rows["line"] = config
    return rows.assign(suite="timm", branch="main", label="07-01", commit_title="", repo="pytorch/pytorch")


def trend(rows, *models, metric="speedup"):
    """`paired` for models with a value in each run of one line of the history; NaN is not measured."""
    cells = pd.DataFrame({"suite": "timm", "config": rows["config"].iloc[0]}, index=range(len(models)))
    values = [
        (run, cell, value)
        for cell, series in enumerate(models)
        for run, value in zip(rows["run"], series, strict=True)
        if value == value
    ]
    return paired(rows, cells, np.array(values, dtype=float), metric)


def test_models_that_come_and_go_do_not_move_a_line():
    found = trend(history([1.0, 1.0], night="n"), [2.0, NAN], [2.0, NAN], [NAN, 4.0])
    assert found["models"].tolist() == [3] and found["value"].tolist() == [pytest.approx(16.0 ** (1 / 3))]
    slow, quick = [2.0, 2.0, NAN, 2.2, 2.2], [NAN, 8.0, 8.0, 8.8, NAN]
    found = trend(history([1.0] * 5), slow, quick)
    assert found["value"].tolist() == pytest.approx([4.0, 4.0, 4.0, 4.4, 4.4])
    assert found["models"].tolist() == [1, 2, 1, 2, 1] and set(found["chain"]) == {0}
    assert trend(history([1.0] * 5), slow, quick, metric="compile_cold_s")["value"].iloc[0] == pytest.approx(5.0)
    # A line breaks without a common model and bridges an empty night.
    found = trend(history([1.0] * 4), [2.0, NAN, 2.0, NAN], [NAN, NAN, NAN, 8.0])
    assert found["value"].tolist() == pytest.approx([2.0, 2.0, 8.0]) and found["chain"].tolist() == [0, 0, 1]
    # Points stand in the order of their commits.
    rows = history([1.0] * 3).assign(order=[1, 2, 0], label=["2.12.0", "2.13.0", "2.11.0"])
    found = trend(rows, [2.0, 3.0, 1.0])
    assert found["value"].tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert found["label"].tolist() == ["2.11.0", "2.12.0", "2.13.0"]


@pytest.fixture(scope="module")
def branches(tmp_path_factory):
    """Three nights of main and two of a release, each with a commit of its own."""
    folder = tmp_path_factory.mktemp("branches")
    bundles, timm = [], [which for which in stores.cells() if which.suite == "timm"]
    for place, (branch, count) in enumerate((("release", 2), ("main", 3))):
        for index in range(count):
            head = {"which": timm, "seed": index, "branch": branch, "commit": stores.SHAS[index]}
            bundles.append(stores.run(folder, f"{branch}-{index}", index + place / 1440, **head))
    return stores.store(folder / "store.db", bundles)


def test_two_branches_are_lines_of_their_own_in_charts_table_and_address(open_app, branches):
    app = open_app(branches, "trends", branch=["main", "release"], config=["default"])
    said = plain(app)
    assert "Highlighted lines" in said and "timm, defaultmain" in said and "timm, defaultrelease" in said
    (chart,) = (json.loads(drawn.proto.spec) for drawn in app.get("vega_lite_chart"))
    told = next(layer["encoding"] for layer in chart["layer"] if "strokeDash" in layer["encoding"])
    assert told["strokeDash"]["scale"]["domain"] == told["shape"]["scale"]["domain"] == ["main", "release"]
    assert told["color"]["scale"]["domain"] == ["default, main", "default, release"]
    assert len(set(told["color"]["scale"]["range"])) == 2
    assert app.multiselect(key="config_widget").proto.max_selections == 3
    app.multiselect(key="branch_widget").set_value(["main"])
    ran(app)
    assert "branch" not in app.query_params and "Highlighted lines" not in plain(app)


def test_new_levels_are_of_a_branch_and_name_the_nights_around_them():
    stepping = [2.0 + 0.001 * (place % 3) for place in range(12)] + [1.6 + 0.001 * (place % 3) for place in range(12)]
    calm = [5.0 + 0.001 * (place % 3) for place in range(24)]
    names = [f"s{place}" for place in range(24)]
    other = history(calm).assign(run=range(24, 48), night=names, point=names)
    found = joined({"main": history(stepping), "release": other})
    (step,) = steps(trend(found, stepping + calm), "speedup")
    assert (step.line, step.before["night"], step.after["night"]) == ("triton, main", "n11", "n12")
    assert step.level_after / step.level_before == pytest.approx(0.8, abs=0.01)

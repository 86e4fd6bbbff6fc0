"""Picking what is compared: by whatever a person knows of it, cut as they want it, and all of it in the address."""

import re

import pytest

from analysis.history.suite_levels import MODELS, RATE, counted, joined
from dashboard import widgets
from dashboard.data import opened
from dashboard.widgets import found_side
from tests.dashboard import stores
from tests.dashboard.conftest import alts, plain, ran, text_of
from tests.dashboard.test_more_pages import history

TITLES = ("Fuse more pointwise kernels (#154001)", "Revert all of it again (#154002)", "x" * 90 + " (#154003)")


@pytest.fixture(scope="module")
def titled(tmp_path_factory):
    """Three synthetic nights of main, each of a commit with a title, and one more of the last commit."""
    folder = tmp_path_factory.mktemp("titled")
    bundles = []
    for place, sha in enumerate((0, 1, 2, 2)):
        head = {"commit": stores.SHAS[sha], "commit_title": TITLES[sha], "label": f"synthetic {place}"}
        bundles.append(stores.run(folder, f"t-{place}", place, seed=place, **head))
    return stores.store(folder / "store.db", bundles)


def alerts(app):
    return re.findall(r'role="alert">(.*?)</', text_of(app))


def test_labels_say_all_of_a_night_and_a_commit_of_several_is_one_more(open_app, titled):
    app = open_app(titled)
    labels = app.selectbox(key="new_widget").options
    (second,) = [label for label in labels if label.endswith(" t-1")]
    for part in ("2026-08-02", stores.SHAS[1][:10], TITLES[1], "main", "synthetic 1"):
        assert part in second
    assert sum("(#154003)" in label for label in labels) == 3
    assert max(map(len, labels)) < 200
    (label,) = [label for label in labels if "all 2 nights of it" in label]
    assert label.startswith(stores.SHAS[2][:10])
    app.selectbox(key="new_widget").select(f"main@{stores.SHAS[2]}")
    ran(app)
    assert app.query_params["new"] == f"main@{stores.SHAS[2]}"
    assert f"main@{stores.SHAS[2][:10]} (2 runs)" in plain(app)


def test_a_typed_part_of_a_name_means_the_one_that_has_it(open_app, titled, monkeypatch):
    monkeypatch.setenv("INDUCTOR_WATCH_DB", str(titled))
    parts = {"revert ALL": "t-1", "154001": "t-0", "154003": f"main@{stores.SHAS[2]}", "synthetic 3": "t-3"}
    assert {typed: found_side(opened(), typed) for typed in parts} == parts
    for typed in ("#154001", "#1540", "latest~1", "no such thing"):  # names of a side as they stand, and none
        assert found_side(opened(), typed) == typed
    # A night that is too old to be offered is found as well.
    monkeypatch.setattr(widgets, "_OFFERED", 1)
    box = open_app(titled).selectbox(key="base_widget")
    assert [option for option in box.options if option.endswith((" t-0", " t-3"))] == [box.options[-1]]
    assert found_side(opened(), "154001") == "t-0"


#: What an address asks of a page in vain, and what is said of it.
IN_VAIN = {
    "": {
        ("configs", "cudagraph"): "configs 'cudagraph', which is not known here; nearest: cudagraphs",
        ("bse", "t-0"): "'bse', which nothing here reads; nearest: base",
        ("base", "gone"): "Base: no night, run, branch, tag, release or commit is called 'gone'",
        ("log", "maybe"): "log 'maybe', which is not known here; known: 1. It is not applied.",
    },
    "trends": {
        ("since", "yesterday"): "since 'yesterday', which is no date such as 2026-11-21",
        ("metric", "speed"): "metric 'speed', which is not known here; nearest: speedup",
        ("setting", "x, y, z"): "setting 'x, y, z'",
        ("config", "eagre"): "config 'eagre', which is not known here",
        ("branch", "mian"): "branch 'mian', which is not known here; nearest: main",
    },
}


@pytest.mark.parametrize("page", IN_VAIN)
def test_what_an_address_asks_for_in_vain_is_said(open_app, titled, page):
    found = alerts(open_app(titled, page, **dict(IN_VAIN[page].keys())))
    missing = [said for said in IN_VAIN[page].values() if said.replace("'", "&#39;") not in " ".join(found)]
    assert missing == []
    assert "ends before it begins" in str(alerts(open_app(titled, "trends", since="2026-08-09", until="2026-08-01")))


def test_trends_show_the_days_that_are_asked_for(open_app, titled):
    app = open_app(titled, "trends", since="2026-08-02", until="2026-08-03")
    assert "main, 2 nights" in text_of(app).replace("\\", "")
    app.date_input(key="days_widget").set_value(("2026-08-01", "2026-08-04"))
    ran(app)
    assert {"since", "until"} & set(app.query_params) == set()
    assert "main, 4 nights" in text_of(app).replace("\\", "")
    said = text_of(open_app(titled, "trends", since="2020-01-01", until="2020-02-01"))
    assert "was not measured on main in this time" in said


def test_the_pass_rate_of_a_night_is_of_the_measured_cells_of_all_its_runs(open_app, titled):
    runs = history([2.0, 2.0], night="n").assign(passed=[2, 3], attempted=[2, 6])
    found = counted(joined({"main": runs}), RATE)
    assert (found["value"].tolist(), found["models"].tolist()) == ([pytest.approx(100 * 5 / 8)], [8])
    assert counted(joined({"main": runs}), MODELS)["value"].tolist() == [5]
    app = open_app(titled, "trends", metric=RATE, by="day")
    assert app.multiselect(key="metric_widget").value == [RATE]
    said = alts(app)
    assert any("pass rate of huggingface over 4 days: cudagraphs from 100 % to 100 %" in line for line in said), said

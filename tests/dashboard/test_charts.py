"""Charts and comparisons as files: made when they are asked for, and the same as the command line's."""

import json
import sys

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.elements import charts
from analysis.reports.html_report import html
from dashboard import widgets
from dashboard.data import Data
from db.engine import open_store
from db.queries.cells import EVERYTHING
from tests.dashboard import stores
from tests.dashboard.conftest import alts, plain, text_of, unfolded
from tests.factories import cell


def buttons(app: AppTest) -> list[str]:
    return [button.proto.label for button in app.get("download_button")]


def test_a_comparison_is_offered_as_a_report_and_pictures(open_app, two_nights):
    found = buttons(unfolded(open_app(two_nights, "compare"), "downloads"))
    assert found[:3] == ["CSV", "Report, one HTML file", "SVG of what changed"]
    assert "PNG of the suites" in found


def test_two_configs_of_one_side_are_offered_without_a_base(open_app, tmp_path):
    store = stores.fill(tmp_path / "one.db", tmp_path, runs=1)
    app = open_app(store, "compare", mode="configs", **{"from": "default", "to": "cudagraphs"})
    assert "Report, one HTML file" in buttons(unfolded(app, "downloads"))
    assert "Report, one HTML file" not in buttons(open_app(store, "compare"))


def test_without_the_renderer_the_report_is_offered_without_pictures(open_app, two_nights, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    app = unfolded(open_app(two_nights, "compare"), "downloads")
    assert "Report, one HTML file" in buttons(app)
    assert not any("PNG" in label or "SVG" in label for label in buttons(app))
    assert "pip install vl-convert-python" in text_of(app)


def test_nothing_is_drawn_before_it_is_asked_for(open_app, two_nights, monkeypatch):
    def refuse(*_):
        raise AssertionError("drawn on a rerun")

    monkeypatch.setattr(widgets, "_built", refuse)
    app = open_app(two_nights, "compare")
    assert buttons(app) == ["CSV"]
    assert len(buttons(unfolded(app, "downloads"))) == 6


def test_a_models_page_follows_the_question_and_shows_both_kernels(open_app, two_nights):
    app = open_app(two_nights, "model", model="huggingface/gpt2", kernels="beside")
    said = plain(app)
    parts = ["Regressed: device time", "Metrics", "Kernels", "Compiled beside eager", "History", "Reproduce"]
    places = [said.casefold().index(part.casefold()) for part in parts]
    assert places == sorted(places)
    assert "at::native::add" in said and "100%" in said and "70%" in said


def test_the_report_knows_filters_and_links(two_nights):
    from dataclasses import replace

    from db.engine import open_store

    store = open_store(two_nights, write=False)
    filters = replace(EVERYTHING, suites=("timm",))
    found = widgets._built(store, "night-0", "night-1", filters, None, "http://127.0.0.1:1/iw")
    assert {cell.cell.partition("/")[0] for cell in found.rows} <= {"timm"}
    assert found.comparison.filters == filters
    assert found.link == "http://127.0.0.1:1/iw/compare?base=night-0&new=night-1"
    across = widgets._built(store, "night-1", "night-1", EVERYTHING, ("default", "cudagraphs"), "")
    assert "base default<br>new cudagraphs" in html(across)
    picture = widgets._picture(
        lambda: widgets._built(store, "night-0", "night-0", EVERYTHING, None, ""), "changes", "SVG"
    )
    assert b"There is no change for this picture" in picture


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("history compiled_ms", "history-compiled-ms"),
        ("../../etc/passwd", "etc-passwd"),
        ("***", "file"),
        ("a" * 300, "a" * 120),
    ],
)
def test_names_of_files_are_plain(words, name):
    assert widgets.file_name(words) == name


@pytest.mark.parametrize(
    ("query", "configs"),
    [
        ({}, ()),
        ({"configs": "default"}, ("default",)),
        ({"configs": ["default", "cudagraphs"], "config": "cudagraphs"}, ("cudagraphs",)),
    ],
)
def test_the_report_has_the_configs_that_the_page_shows(open_app, two_nights, monkeypatch, query, configs):
    asked = []
    monkeypatch.setattr(widgets, "offer_report", lambda _, filters, across: asked.append((filters.configs, across)))
    open_app(two_nights, "compare", **query)
    assert asked[-1] == (configs, None)


def lines(values=(1.0, 2.0, 2.0, 3.0), highlighted=("a.b[c]",), **how):
    """Two lines over four places; the first one stands on its own at the end."""
    rows = pd.DataFrame(
        {
            "place": [0, 1, 2, 3] * 2,
            "date": pd.date_range("2026-08-01", periods=4, tz="UTC").tolist() * 2,
            "line": ["a.b[c]"] * 4 + ["grey"] * 4,
            "value": [*values, 1.0, 1.0, 1.0, 1.0],
            "chain": [1, 1, 1, 2, 1, 1, 1, 1],
            "branch": "main",
            "night": ["n0", "n1", "n2", "n3"] * 2,
        }
    )
    rows = rows.assign(text=[f"{value} ms" for value in rows["value"]])
    facts = pd.DataFrame({"night": ["n0", "n1", "n2", "n3"]}, index=range(4))
    return charts.lines(
        rows,
        facts,
        ["one", "two", "three", "four"],
        highlighted,
        title="latency",
        pick="night",
        colors=charts.COLORS["light"],
        **how,
    )


def drawn(chart):
    spec = chart.to_dict()
    return spec, list(spec["datasets"].values())


def test_two_clicks_lead_to_a_comparison_with_the_older_one_as_base():
    def draw():
        import streamlit as st

        from dashboard.widgets import ways

        for picked in ([], ["new"], ["gone", "other", "new", "old"]):
            ways(
                st.container(),
                picked,
                {"old": "2.9.1", "new": "2.10.0", "other": ""},
                lambda **sides: str(sides),
                "night",
            )

    said = text_of(AppTest.from_function(draw).run())
    assert "Click a point to open its night" in said and said.count("Open this night") == 2
    assert (
        "{&#39;base&#39;: &#39;old&#39;, &#39;new&#39;: &#39;new&#39;}" in said and said.count("Compare these two") == 1
    )


@pytest.mark.parametrize(("values", "share"), [([1.0, 1.01] * 4, 1.02065), ([1.0] * 8, 0), ([1.0, 1.01] * 2, 0)])
def test_a_band_is_as_wide_as_neighbours_scatter_where_that_is_known(values, share):
    rows = pd.DataFrame({"line": "a", "place": range(len(values)), "value": values})
    band = charts._band(rows)
    assert len(band) == (len(values) if share else 0)
    for above, below in (("high", "value"), ("value", "low")) if share else ():
        assert (band[above] / band[below]).tolist() == pytest.approx([share] * len(band), rel=1e-4)


def test_a_line_loses_no_place_and_breaks_where_a_chain_ends():
    (told,) = [rows for rows in drawn(lines())[1] if rows[0].get("line") == "a.b[c]"]
    assert [row["value"] for row in told] == [1.0, 2.0, 2.0, None, 3.0]


def test_what_a_logarithmic_axis_has_no_place_for_is_a_gap():
    spec, datasets = drawn(lines([0.0, 2.0, 2.0, 3.0], log=True))
    assert '"type": "log"' in json.dumps(spec)
    (told,) = [rows for rows in datasets if rows[0].get("line") == "a.b[c]"]
    assert [row["value"] for row in told] == [None, 2.0, 2.0, None, 3.0]


@pytest.mark.parametrize("page", ["", "trends", "model"])
def test_every_chart_says_its_finding(open_app, two_nights, page):
    said = alts(open_app(two_nights, page))
    assert said and all(" from " in words or words.startswith("How each run ended") for words in said)


def test_commits_of_one_day_are_told_apart_by_their_shas_at_the_axis(tmp_path):
    dates = ["2026-07-01T01:00:00+00:00", "2026-07-01T09:00:00+00:00", "2026-07-02T01:00:00+00:00"]
    bundles = [
        stores.night(tmp_path, f"n{place}", minutes=place, cells=[cell()], commit=stores.SHAS[place], commit_date=date)
        for place, date in enumerate(dates)
    ]
    bundles.append(
        stores.night(
            tmp_path, "side", minutes=9, cells=[cell()], branch="side", commit=stores.SHAS[3], commit_date=dates[2]
        )
    )
    engine = open_store(stores.store(tmp_path / "days.db", bundles), write=False)
    places = Data(engine, "1").places()
    assert places == {"n0": "a1a1a1a", "n1": "b2b2b2b", "n2": "2026-07-02", "side": "2026-07-02"}

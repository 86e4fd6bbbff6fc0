"""Charts and comparisons as files: made when they are asked for, and the same as the command line's."""

import sys

import pandas as pd
from streamlit.testing.v1 import AppTest

from analysis.elements import charts
from tests.dashboard.conftest import buttons, text_of, unfolded


def test_a_report_is_offered_and_pictures_where_there_is_a_renderer(open_app, two_nights, monkeypatch):
    app = open_app(two_nights, "compare")
    assert buttons(app) == ["CSV"], "nothing is drawn before it is asked for"
    found = buttons(unfolded(app, "downloads"))
    assert found[:3] == ["CSV", "Report, one HTML file", "SVG of what changed"]
    assert "PNG of the suites" in found
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    app = unfolded(open_app(two_nights, "compare"), "downloads")
    assert "Report, one HTML file" in buttons(app)
    assert not any("PNG" in label or "SVG" in label for label in buttons(app))
    assert "pip install vl-convert-python" in text_of(app)


def test_a_line_loses_no_place_and_breaks_where_a_chain_ends_or_at_a_zero():
    values = {"value": [0.0, 2.0, 2.0, 3.0, *[1.0] * 4], "chain": [1, 1, 1, 2, *[1] * 4]}
    rows = pd.DataFrame({"place": [0, 1, 2, 3] * 2, "line": ["a.b[c]"] * 4 + ["grey"] * 4, **values})
    rows["date"] = pd.date_range("2026-08-01", periods=4, tz="UTC").tolist() * 2
    rows["night"], rows["text"] = [f"n{at}" for at in rows["place"]], [f"{value} ms" for value in rows["value"]]
    rows = rows.assign(branch="main")
    facts = pd.DataFrame({"night": ["n0", "n1", "n2", "n3"]}, index=range(4))
    words = {"title": "latency", "pick": "night", "colors": charts.COLORS["light"]}
    for log, expected in ((False, [0.0, 2.0, 2.0, None, 3.0]), (True, [None, 2.0, 2.0, None, 3.0])):
        spec = charts.lines(rows, facts, ["one", "two", "three", "four"], ("a.b[c]",), log=log, **words).to_dict(True)
        (told,) = [found for found in spec["datasets"].values() if found[0].get("line") == "a.b[c]"]
        assert [row["value"] for row in told] == expected


def test_two_clicks_lead_to_a_comparison_with_the_older_one_as_base():
    def draw():
        import streamlit as st

        from dashboard.widgets import ways

        for picked in ([], ["new"], ["gone", "other", "new", "old"]):
            ways(
                st.container(),
                picked,
                {"old": "2.9.1", "new": "2.10.0", "other": ""},
                lambda **sides: " ".join(sides.values()),
                "night",
            )

    said = text_of(AppTest.from_function(draw).run())
    assert "Click a point to open its night" in said and said.count("Open this night") == 2
    assert 'href="old new"' in said and said.count("Compare these two") == 1

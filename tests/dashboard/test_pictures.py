"""Charts and comparisons as files: made when they are asked for, and the same as the command line's."""

import sys

import altair as alt
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.compare.tables import EVERYTHING
from analysis.reports.charts import PictureError
from analysis.reports.html import html
from dashboard.components import downloads as handing_on
from dashboard.components import pictures
from tests.dashboard import stores
from tests.dashboard.conftest import text_of, unfolded


def buttons(app: AppTest) -> list[str]:
    return [button.proto.label for button in app.get("download_button")]


def chart(rows=3, name="<script>alert(1)</script>"):
    data = pd.DataFrame({"n": range(rows), "value": range(rows), "config": name})
    return alt.Chart(data).mark_line().encode(x="n", y="value", color="config").properties(title=name)


def test_a_comparison_is_offered_as_a_report_and_pictures(open_app, two_nights):
    found = buttons(unfolded(open_app(two_nights, "compare"), "handing_on"))
    assert found[:3] == ["CSV", "Report, one HTML file", "SVG of what changed"]
    assert "PNG of the suites" in found


def test_two_configs_of_one_side_are_offered_without_a_base(open_app, tmp_path):
    store = stores.fill(tmp_path / "one.db", tmp_path, runs=1)
    app = open_app(store, "compare", mode="configs", **{"from": "default", "to": "cudagraphs"})
    assert "Report, one HTML file" in buttons(unfolded(app, "handing_on"))
    assert "Report, one HTML file" not in buttons(open_app(store, "compare"))


def test_without_the_renderer_the_report_is_offered_and_one_line_says_what_is_missing(
    open_app, two_nights, monkeypatch
):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    app = unfolded(open_app(two_nights, "compare"), "handing_on")
    assert "Report, one HTML file" in buttons(app)
    assert not any("PNG" in label or "SVG" in label for label in buttons(app))
    assert "pip install vl-convert-python" in text_of(app)


def test_nothing_is_drawn_before_it_is_asked_for(open_app, two_nights, monkeypatch):
    def refuse(*_):
        raise AssertionError("drawn on a rerun")

    monkeypatch.setattr(handing_on, "_built", refuse)
    monkeypatch.setattr(pictures, "svg", refuse)
    app = open_app(two_nights, "compare")
    assert buttons(app) == ["CSV"]
    assert len(buttons(unfolded(app, "handing_on"))) == 6
    app = open_app(two_nights, "model", model="huggingface/gpt2")
    assert buttons(app) == []
    assert "Pictures to hand on" in [fold.label for fold in app.expander]


def test_samples_are_said_and_drawn_when_they_are_asked_for(open_app, two_nights):
    app = open_app(two_nights, "model", model="huggingface/gpt2")
    said = [fold.label for fold in app.expander]
    assert any("Median compiled latency" in label and "calls" in label for label in said)
    before = len(app.get("vega_lite_chart"))
    assert len(unfolded(app, "samples").get("vega_lite_chart")) == before + 2


@pytest.mark.parametrize(("page", "query"), [("trends", {}), ("model", {"model": "huggingface/gpt2"})])
def test_every_chart_is_what_its_schema_says(open_app, two_nights, monkeypatch, page, query):
    """The pages leave the check out, since it takes longer than the chart."""
    drawn = []
    monkeypatch.setattr(
        pictures.Gallery, "offer", lambda gallery: drawn.extend(make() for make in gallery.shown.values())
    )
    unfolded(open_app(two_nights, page, **query), "samples")
    assert len(drawn) > 1
    with alt.data_transformers.enable("default", max_rows=None):
        for chart in drawn:
            chart.to_dict(validate=True)


def test_the_report_knows_filters_and_links(two_nights):
    from dataclasses import replace

    from db.engine import open_store

    store = open_store(two_nights, write=False)
    filters = replace(EVERYTHING, suites=("timm",))
    found = handing_on._built(store, "night-0", "night-1", filters, None, "http://127.0.0.1:1/iw")
    assert {cell.cell.partition("/")[0] for cell in found.cells} <= {"timm"}
    assert found.comparison.filters == filters
    assert found.link == "http://127.0.0.1:1/iw/compare?base=night-0&new=night-1"
    across = handing_on._built(store, "night-1", "night-1", EVERYTHING, ("default", "cudagraphs"), "")
    assert "base default<br>new cudagraphs" in html(across)
    assert "There is no change for this picture" in handing_on._svg(
        lambda: handing_on._built(store, "night-0", "night-0", EVERYTHING, None, ""), "changes"
    )


@pytest.mark.parametrize(
    ("page", "address"),
    [
        ("http://127.0.0.1:8501/compare", "http://127.0.0.1:8501"),
        ("https://host/iw/compare?base=a", "https://host/iw"),
        ("http://127.0.0.1:8501/", "http://127.0.0.1:8501"),
        ("", ""),
    ],
)
def test_links_of_the_report_begin_with_the_dashboards_address(page, address):
    assert handing_on.dashboard_address(page) == address


@pytest.mark.parametrize(("theme", "back"), [("light", "#ffffff"), ("dark", "#0e1117")])
def test_a_chart_is_a_picture_of_its_own(theme, back):
    drawn = pictures.svg(chart(), theme).decode()
    assert drawn.startswith("<svg") and back in drawn
    assert "&lt;script&gt;" in drawn and "<script" not in drawn
    assert "href" not in drawn and "url(http" not in drawn
    assert pictures.png(chart(), theme).startswith(b"\x89PNG")


def test_more_rows_than_a_notebook_takes_are_drawn():
    assert b"<svg" in pictures.svg(chart(6000))


def test_a_picture_that_cannot_be_drawn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(PictureError, match="pip install vl-convert-python"):
        pictures.svg(chart())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("history compiled_ms", "history-compiled-ms"),
        ("../../etc/passwd", "etc-passwd"),
        ("***", "picture"),
        ("a" * 300, "a" * 120),
    ],
)
def test_names_of_files_are_plain(words, name):
    assert pictures.file_name(words) == name


def test_pages_without_charts_offer_none(open_app, two_nights):
    app = open_app(two_nights, "about")
    assert "Pictures to hand on" not in [fold.label for fold in app.expander]
    assert "metric" in text_of(app)


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
    monkeypatch.setattr(handing_on, "offer", lambda _, filters, across: asked.append((filters.configs, across)))
    open_app(two_nights, "compare", **query)
    assert asked[-1] == (configs, None)

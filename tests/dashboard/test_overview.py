"""The overview's figures over the last nights and its open records, what is drawn of many runs, and the warm start."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import pytest

from db.engine import open_store
from db.regression_records import Finding, open_regression
from tests.dashboard import stores
from tests.dashboard.conftest import alts, text_of, unfolded

AT = datetime(2026, 8, 2, 8, tzinfo=UTC)


@pytest.fixture(scope="module")
def three_nights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    return stores.fill(folder / "store.db", runs=3)


def test_figures_what_broke_and_the_way_to_two_configs(open_app, three_nights):
    app = open_app(three_nights)
    said = text_of(app)
    assert "Broke: 1" in said and "BackendCompilerFailed in compile: no kernel fits" in said and "Traceback" not in said
    buttons = " ".join(str(element.proto) for element in app.get("bidi_component"))
    assert "inductor-watch run --suite huggingface --model opt --config cudagraphs" in buttons
    (paragraph,) = re.findall(r'<p class="iw-configs">.*?</p>', said)
    assert [metric.label for metric in app.metric] == ["Passing", "Device time", "Cold compile", "Compression"]
    (at_once,) = [element.value.replace("\\", "") for element in app.markdown]
    (verdict,) = re.findall(r'<p class="iw-verdict">(.*?)</p>', said)
    assert html.unescape(re.sub(r"<[^>]+>", "", verdict)) == at_once, "it comes before what a browser loads for it"
    changes = re.compile(r"Changes with 95 % intervals, \d+ of \d+: gpt2 .* from \+")
    assert any(changes.match(fold.label) for fold in app.expander)
    lines = alts(app)
    assert len(lines) == 4 and all(" over 3 nights" in words for words in lines)
    assert all(words.partition(" over ")[2] in said for words in lines), "the words stand beside the line"
    which = next(one for one in stores.cells() if one.model == "opt" and one.config.name == "cudagraphs")
    app.session_state["intervals"] = True
    assert "Traceback" in text_of(unfolded(app, f"log_of_{which.cell_id}")) and len(alts(app)) == 5
    # One link compares two configs of the night.
    links = dict(re.findall(r'href="\./compare\?([^"]*)"[^>]*>([^<]*)</a>', paragraph))
    assert set(links.values()) == {one.config.name for one in stores.cells()} - {"default"}
    (query,) = (query.replace("&amp;", "&") for query, name in links.items() if name == "cudagraphs")
    assert "default against" in paragraph
    said = text_of(open_app(three_nights, page="compare", **dict(parse_qsl(query))))
    assert "default against cudagraphs" in said


def test_newest_open_records_lead_to_their_page(open_app, tmp_path):
    path = stores.fill(tmp_path / "store.db")
    engine = open_store(path, write=True)
    names = []
    inference = {which.model: which for which in stores.cells() if which.dtype == "bfloat16"}
    for place, which in enumerate(inference.values()):
        finding = Finding(which.cell_id, "night-0", "night-1", "regressed", "compiled_ms", 10.0, 12.0)
        names.append(open_regression(engine, finding, at=AT.replace(hour=place), author="ann").regression_id)
    engine.dispose()
    body = text_of(open_app(path))
    listed = re.findall(r'href="\./regressions\?record=(\w+)"', body)
    assert listed == names[:0:-1]
    assert "the newest 5 of 6" in body and 'href="./regressions"' in body

"""The overview's figures over the last nights and its open records, what is drawn of many runs, and the warm start."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import pytest

from analysis.compare.suite_groups import compare_groups
from analysis.elements.overview_tables import grid
from analysis.elements.wording import ABSENT
from dashboard import url
from db.engine import open_store
from db.regression_records import Finding, open_regression
from tests.analysis.compare import cells
from tests.dashboard import stores
from tests.dashboard.conftest import alts, text_of, unfolded
from tests.factories import cell

AT = datetime(2026, 8, 2, 8, tzinfo=UTC)


@pytest.fixture(scope="module")
def three_nights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    return stores.fill(folder / "store.db", folder, runs=3)


def test_four_key_figures_each_with_how_they_went(open_app, three_nights):
    app = open_app(three_nights)
    assert [metric.label for metric in app.metric] == ["Passing", "Device time", "Cold compile", "Compression"]
    (at_once,) = [element.value.replace("\\", "") for element in app.markdown]
    (verdict,) = re.findall(r'<p class="iw-verdict">(.*?)</p>', text_of(app))
    assert html.unescape(re.sub(r"<[^>]+>", "", verdict)) == at_once, "it comes before what a browser loads for it"
    assert any(
        re.match(r"Changes with 95 % intervals, \d+ of \d+: gpt2 .* from \+", fold.label) for fold in app.expander
    )
    assert len(alts(unfolded(app, "intervals"))) == 5
    said = alts(open_app(three_nights))
    assert len(said) == 4 and all(" over 3 nights" in words for words in said)
    assert all(words.partition(" over ")[2] in text_of(app) for words in said), "the words stand beside the line"


def test_what_broke_has_its_reason_log_and_command(open_app, three_nights):
    which = next(one for one in stores.cells() if one.model == "opt" and one.config.name == "cudagraphs")
    app = open_app(three_nights)
    said = text_of(app)
    assert "Broke: 1" in said and "BackendCompilerFailed in compile: no kernel fits" in said and "Traceback" not in said
    buttons = " ".join(str(element.proto) for element in app.get("bidi_component"))
    assert "inductor-watch run --suite huggingface --model opt --config cudagraphs" in buttons
    assert "Traceback" in text_of(unfolded(app, f"log_of_{which.cell_id}"))


def test_two_configs_of_the_night_are_compared_by_one_link(open_app, three_nights):
    (paragraph,) = re.findall(r'<p class="iw-configs">.*?</p>', text_of(open_app(three_nights)))
    links = dict(re.findall(r'href="\./compare\?([^"]*)"[^>]*>([^<]*)</a>', paragraph))
    assert set(links.values()) == {one.config.name for one in stores.cells()} - {"default"}
    (query,) = (query.replace("&amp;", "&") for query, name in links.items() if name == "cudagraphs")
    assert "default against" in paragraph
    said = text_of(open_app(three_nights, page="compare", **dict(parse_qsl(query))))
    assert "default against cudagraphs" in said


def test_newest_open_records_lead_to_their_page(open_app, tmp_path):
    path = stores.fill(tmp_path / "store.db", tmp_path)
    engine = open_store(path, write=True)
    names = []
    for place, model in enumerate(("gpt2", "bert", "t5", "opt", "resnet50", "vit_base")):
        suite = "timm" if model in ("resnet50", "vit_base") else "huggingface"
        which = cell(model, suite=suite)
        finding = Finding(which.cell_id, "night-0", "night-1", "regressed", "compiled_ms", 10.0, 12.0)
        names.append(open_regression(engine, finding, at=AT.replace(hour=place), author="ann").regression_id)
    engine.dispose()
    body = text_of(open_app(path))
    listed = re.findall(r'href="\./regressions\?record=(\w+)"', body)
    assert listed == names[:0:-1]
    assert "the newest 5 of 6" in body and 'href="./regressions"' in body


def of_dtypes(*groups):
    """Groups of one passing cell each, of a suite, a dtype and a config, and of a phase where it is training."""
    names = [
        replace(cells.name(f"model{at}", suite, config, *phase), dtype=dtype)
        for at, (suite, dtype, config, *phase) in enumerate(groups)
    ]
    return compare_groups([cells.compared("unchanged", cell=name) for name in names])


def rows_of_grid(groups):
    """The columns of the grid's first table, and by its rows which of them have a figure."""
    (head, *rows) = re.findall(r"<tr.*?</tr>", str(grid(groups, url.link)).partition("</table>")[0], re.DOTALL)
    cut = [
        [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in (head, *rows)
    ]
    return cut[0][1:], {row[0]: [figure != ABSENT for figure in row[1:]] for row in cut[1:]}


def test_cells_in_another_dtype_have_a_column_beside_their_suite():
    suites = [("llm", "bfloat16"), ("timm", "bfloat16"), ("timm", "as_is")]
    groups = of_dtypes(*((*suite, config) for suite in suites for config in ("default", "tma")))
    assert rows_of_grid(groups) == (["llm", "timm", "timm as_is"], {"default": [True] * 3, "tma": [True] * 3})
    # A night of two dtypes has rows of each.
    groups = of_dtypes(*((suite, dtype, "default") for suite in ("llm", "timm") for dtype in ("bfloat16", "float32")))
    assert rows_of_grid(groups) == (["llm", "timm"], {"bfloat16": [True] * 2, "float32": [True] * 2})

"""The dashboard on measured releases of torch: what is saved of it, what opens in it, and its pictures."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from jobs.cli import app
from tests.dashboard import stores
from tests.e2e.conftest import SCREENSHOTS, keep, serving, settled, watched

pytestmark = pytest.mark.slow  # `make browser` runs them

#: torch 2.11.0 and 2.13.0, three runs each.
BASE, NEW = "releases@70d99e998b", "releases@cf30153c4c"
MODEL = "huggingface/BertForMaskedLM"
SIDES = f"base={BASE}&new={NEW}"


@pytest.fixture
def page(chromium, real_server):
    with watched(chromium, base_url=real_server, permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


def test_the_report_of_the_page_is_that_of_the_command_line(page, chromium, real_server, real_store, tmp_path):
    page.goto(f"/compare?{SIDES}&suite=huggingface")
    settled(page)
    page.get_by_role("button", name="Export report and charts").click()
    keep(page, "compare-hand-on-real")
    saved = {}
    for name in ("Report, one HTML file", "SVG of what changed", "PNG of the suites"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        saved[name] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved[name])
    words = ["report", BASE, NEW, "--suite", "huggingface", "--db", str(real_store), "--dashboard-url", real_server]
    done = CliRunner().invoke(app, [*words, "--format", "html", "--picture", str(tmp_path / "same.svg")])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, [*words, "--format", "html"])
    html, drawn, png = saved.values()
    assert html.read_text() == done.output
    assert drawn.read_text() == (tmp_path / "same.svg").read_text()
    assert png.read_bytes().startswith(b"\x89PNG")

    for file in (html, drawn):
        asked = []
        context = chromium.new_context(color_scheme="dark", viewport={"width": 1300, "height": 900})
        opened = context.new_page()
        opened.on("request", lambda request, asked=asked: asked.append(request.url))
        opened.goto(file.as_uri())
        assert asked == [file.as_uri()]
        assert opened.evaluate("performance.getEntriesByType('resource').length") == 0
        keep(opened, f"handed-on-{file.suffix[1:]}")
        context.close()


@pytest.mark.skipif(not os.environ.get(SCREENSHOTS), reason=f"{SCREENSHOTS} names no folder to keep pictures in")
def test_the_pictures_of_the_readme(chromium, tmp_path):
    with serving(stores.shipped(tmp_path / "store.db"), tmp_path) as address:
        for scheme in ("light", "dark"):
            look = {"viewport": {"width": 1280, "height": 900}, "color_scheme": scheme}
            with watched(chromium, base_url=address, **look) as page:
                page.goto("/")
                settled(page)
                page.locator('[data-testid="stVegaLiteChart"] .marks').first.wait_for()
                page.wait_for_timeout(700)
                assert "latency in 22 of 28 models" in page.locator(".iw-verdict").inner_text()
                keep(page, f"overview-{scheme}")

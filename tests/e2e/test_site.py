"""The published site in a real browser, served by Python's `http.server` under a sub-path, and axe over its pages."""

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.command_line import call, tell
from tests.dashboard import stores
from tests.e2e.conftest import LOOKS, keep, violations, watched

PAGES = ("", "compare", "model/huggingface/gpt2/", "trends", "commit", "regressions")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of a site of three nights, under a sub-path."""
    folder = tmp_path_factory.mktemp("served")
    store = stores.fill(folder / "store.db", runs=3)
    done = call("publish", folder / "www" / "sub", "--db", store, folder=folder)
    assert done.returncode == 0, tell(done)
    serve = partial(SimpleHTTPRequestHandler, directory=folder / "www")
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/sub/"
        server.shutdown()


@pytest.fixture
def page(chromium, site):
    """A page that fails the test if it asks another host for anything or a script breaks."""
    with watched(chromium, base_url=site) as opened:
        yield opened


def test_from_the_overview_to_the_cells_of_a_pair_to_what_changed(page, site):
    page.goto(site)
    assert "gpt2" in page.locator(".iw-verdict").first.inner_text()
    page.get_by_role("link", name="6 regressed").first.click()
    page.wait_for_selector('[data-ready="judged"]')
    assert "outcome=regressed" in page.url
    assert page.locator("#compare caption").inner_text() == "6 cells, of 24"
    page.locator("#compare tbody a").first.click()
    page.wait_for_url("**/model/huggingface/gpt2/?base=night-1&new=night-2#c-*")
    cell = page.locator("details.cell:target")
    assert "Regressed: device time" in cell.inner_text() and "triton_poi_fused_add" in cell.inner_text()


def test_two_nights_without_verdicts_are_joined_and_a_sort_is_numeric(page, site):
    page.goto(f"{site}compare?base=again-1&new=night-1&phase=inference")
    page.wait_for_selector('[data-ready="joined"]')
    assert "without a verdict" in page.locator("#compare").inner_text()
    assert page.locator("#compare tbody tr").count() == 18
    page.get_by_role("button", name="device time").click()
    column = page.locator("#compare thead th", has_text="device time").evaluate("head => head.cellIndex")
    cells = page.locator(f"#compare tbody tr > :nth-child({column + 1})")
    changes = cells.evaluate_all("of => of.map(e => +e.dataset.value)")
    assert changes == sorted(changes) and len(set(changes)) > 1
    page.get_by_label("Filter by text").fill("gpt2")
    page.get_by_label("Filter by text").press("Enter")
    page.locator("#compare caption", has_text="of 24").wait_for()
    assert set(page.locator("#compare tbody th a").all_inner_texts()) == {"gpt2"} and "q=gpt2" in page.url


def test_addresses_of_the_dashboard_lead_to_their_pages(page, site):
    query = "setting=inference,bfloat16,cuda,8&config=cudagraphs&base=night-0&new=night-1"
    page.goto(f"{site}model?model=huggingface/gpt2&{query}")
    page.wait_for_url(re.compile(r"/model/huggingface/gpt2/\?base=night-0&new=night-1#c-\w+"))
    page.locator("#asked table").wait_for()
    assert page.locator("details.cell:target").get_attribute("open") is not None
    page.goto(f"{site}commit?new=main@{stores.SHAS[2][:10]}")
    page.wait_for_url(f"**/commit/{stores.SHAS[2]}/")
    page.goto(f"{site}model?model=huggingface/nosuch")
    page.get_by_role("alert").wait_for()


def test_charts_are_drawn_where_they_are_seen(page, site):
    page.goto(f"{site}model/huggingface/gpt2/")
    page.locator("figure.chart").first.scroll_into_view_if_needed()
    page.locator('figure.chart[data-drawn="1"] svg').first.wait_for()
    page.goto(f"{site}trends")
    page.locator('figure.chart[data-drawn="1"] svg').first.wait_for()
    assert "device speedup of huggingface over 3 nights" in page.locator("figcaption").first.inner_text()


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("address", PAGES)
def test_axe_finds_nothing_and_the_page_fits(chromium, site, address, scheme, width):
    with watched(chromium, viewport={"width": width, "height": 1000}, color_scheme=scheme) as page:
        page.goto(f"{site}{address}", wait_until="networkidle")
        if "compare" in address:
            page.wait_for_selector("[data-ready]")
        keep(page, f"site-{address.partition('?')[0].replace('/', '-')}-{scheme}-{width}")
        assert violations(page) == []
        for fits in (width, 390):
            page.set_viewport_size({"width": fits, "height": 1000})
            assert page.evaluate("document.documentElement.scrollWidth") <= fits

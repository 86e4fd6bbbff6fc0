"""The dashboard in a real browser: pick, hand the address on, point at a chart."""

from tests.dashboard import stores
from tests.e2e.conftest import serving, settled, watched


def test_what_is_picked_stands_in_address_navigation_and_link(page):
    page.goto("/trends")
    settled(page)
    page.locator(".st-key-log_widget label").first.click()
    page.wait_for_url("**log=1*")
    settled(page)
    page.locator('[data-testid="stVegaLiteChart"][aria-label^="device speedup of"]').first.wait_for(state="attached")
    for key, typed in (("by", "week"), ("base", "a1a1a1a1")):
        box = page.locator(f".st-key-{key}_widget input")
        box.fill(typed)
        box.press("Enter")
        page.wait_for_url(f"**{key}={typed}*")
        settled(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for is_on in (False, True):
        page.get_by_role("button", name="Copy link").click()
        page.get_by_text("Copied.").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "log=1" in copied and "new=night-2" in copied and ("dates=1" in copied) == is_on
        page.locator(".st-key-dates_widget label").first.click()
        settled(page)
    link = page.locator('[data-testid="stSidebar"] a', has_text="Compare").first
    assert "by=week" in link.get_attribute("href") and "log=1" not in link.get_attribute("href")
    link.click()
    page.wait_for_url("**/compare?*base=a1a1a1a1*")
    settled(page)
    page.get_by_test_id("stMain").get_by_text("base main@a1a1a1a1a1 (night-0)").first.wait_for()


def test_charts_are_the_first_that_a_server_shows_and_tell_the_pointer(chromium, tmp_path):
    with serving(stores.fill(tmp_path / "store.db"), tmp_path) as address, watched(chromium) as opened:
        opened.goto(f"{address}/trends")
        settled(opened)
        opened.locator("h1", has_text="Trends").wait_for()
        assert opened.get_by_role("dialog").count() == 0
        drawn = opened.get_by_test_id("stVegaLiteChart").first.locator("svg, canvas").first
        drawn.wait_for()
        opened.locator('[data-testid="stVegaLiteChart"][aria-label^="device speedup of"]').first.wait_for()
        box = drawn.bounding_box()
        opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tip = opened.locator("#vg-tooltip-element")
        tip.wait_for()
        assert "UTC" in tip.inner_text() and "commit" in tip.inner_text() and "default" in tip.inner_text()

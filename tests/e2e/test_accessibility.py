"""axe-core over every page, light and dark and narrow: no violation; what Streamlit itself draws is in the same count."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import LOOKS, context_of, keep, settled, violations

PAGES = ("", "compare", "model?model=huggingface/gpt2", "commit", "census", "trends", "regressions", "runs")
PHONE = 390
#: The script has ended, nothing is about to be replaced and nothing fades: on a busy machine that takes its time.
_STANDS = """() => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    && !document.querySelector('[data-stale="true"]') && !document.getAnimations().some(one => one.playState === 'running')"""
_FITS = """phone => document.querySelector('[data-testid="stMain"]').scrollWidth <= phone"""


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("address", PAGES)
def test_axe_finds_nothing_and_the_page_fits_a_phone(chromium, server, address, scheme, width):
    context = context_of(chromium, viewport={"width": width, "height": 1000}, color_scheme=scheme)
    page = context.pages[0] if context.pages else context.new_page()
    page.set_viewport_size({"width": width, "height": 1000})
    page.goto(f"{server}/{address}")
    settled(page)
    page.wait_for_timeout(300)  # what is drawn anew fades in
    page.wait_for_function(_STANDS)
    keep(page, f"{address.partition('?')[0] or 'overview'}-{scheme}-{width}")
    if told := violations(page):
        page.wait_for_timeout(3000)  # a button of Streamlit's own is empty until its icon is there
        told = violations(page)
    assert told == []
    page.set_viewport_size({"width": PHONE, "height": 800})
    page.wait_for_function(_FITS, arg=PHONE, timeout=5000)

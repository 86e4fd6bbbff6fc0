"""The small lines beside key figures: gaps stay gaps, and what is drawn is said."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from math import nan
from urllib.parse import unquote

from analysis.history.recent import RATE, Recent
from dashboard.components.sparkline import sparkline
from dashboard.pages.overview import headline


def drawn(found):
    return unquote(re.search(r'src="data:image/svg\+xml,([^"]*)"', found)[1])


def test_a_line_ends_at_a_gap_and_begins_after_it():
    picture = drawn(sparkline([1, 2, nan, 3, 4], "said", color="#123456"))
    assert picture.count("<polyline") == 2
    assert "nan" not in picture
    assert picture.count("<circle") == 1


def test_base_has_a_ring_where_it_is_known():
    assert drawn(sparkline([1, 2, 3], "said", color="#123456", marked=1)).count("<circle") == 2
    assert drawn(sparkline([1, nan, 3], "said", color="#123456", marked=1)).count("<circle") == 1


def test_one_value_is_no_line():
    assert sparkline([nan, 1.0], "said", color="#123456") == ""


def test_the_words_are_text_whatever_they_hold():
    found = sparkline([1, 2], 'a"><script>alert(1)</script>', color="#123456")
    assert "<script>" not in found and html.escape('a"><script>') in found


def test_a_card_says_how_its_figure_went(monkeypatch):
    monkeypatch.setattr(headline.palette, "theme", lambda: "light")
    started = tuple(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(4))
    found = Recent(("a", "b", "c", "d"), started, {RATE: (0.9, nan, 0.95, 0.92)})
    cards = headline.with_recent([("Passing", "92", "note"), ("Missing", "3", "note")], found, "c")

    assert cards[1] == ("Missing", "3", "note")
    said = html.unescape(re.search(r'alt="([^"]*)"', cards[0][2])[1]).replace("\u202f", " ")
    assert (
        said
        == "Passing over 4 nights, 1 without it: from 90.0 % to 92.0 %, lowest 90.0 %, highest 95.0 %; the ring is base"
    )

"""The dashboard's own rules, without a page."""

import math

from analysis.elements import wording
from dashboard import url
from dashboard.widgets import markdown


def test_numbers_have_units_and_the_unmeasured_is_a_dash():
    shown = {
        ("compiled_ms", 0.66712): "0.667\u202fms",
        ("speedup", 1.4426): "1.44\N{MULTIPLICATION SIGN}",
        ("compiled_peak_bytes", 6.53e9): "6.53\u202fGB",
        ("graph_breaks", 0.0): "0",
        ("leak_bytes_per_call", 5242.88): "5,243\u202fB",
        ("compiled_ms", math.nan): wording.ABSENT,
    }
    assert {one: wording.number(*one) for one in shown} == shown


def test_a_share_is_never_rounded_up_to_all_and_a_change_has_a_sign():
    assert (wording.share(1799, 1800), wording.share(0, 0)) == ("99\u202f%", wording.ABSENT)
    shown = [wording.signed(value).replace("\u202f", " ") for value in (3.66, -0.42, 0.01)]
    assert shown == ["+3.7 %", "\N{MINUS SIGN}0.4 %", "±0.0 %"]


def test_an_address_and_markdown_escape_what_is_in_a_name():
    address = url.address("./compare", {"config": ["a+b=c", "d"], "q": ["x&y"]})
    assert address == "./compare?config=a%2Bb%3Dc&config=d&q=x%26y"
    assert markdown("a_b*[c](d)$x$") == r"a\_b\*\[c\]\(d\)\$x\$"

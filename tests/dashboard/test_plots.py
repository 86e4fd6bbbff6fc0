"""Charts drawn as HTML: where lines and labels are, what each place says, and that names stay text."""

import base64
import math
import re

import numpy as np
import pytest

from dashboard.components import plots


def line(values, **how):
    values = np.array(values, dtype=float)
    places = (np.arange(len(values)) + 0.5) / len(values)
    return plots.Line("#123456", places, values, np.zeros(len(values), dtype=bool), **how)


def drawn(plot):
    """The HTML, and the paths of its picture."""
    html = plots.html(plot)
    svg = base64.b64decode(re.search(r"base64,([^\"]*)", html)[1]).decode()
    return html, re.findall(r'd="([^"]*)"', svg)


def labels(html):
    """The labels of the upright axis, with the height of each in percent."""
    return {text: float(at) for at, text in re.findall(r'bottom:([\d.-]+)%">([^<]*)</span>', html)}


def test_a_line_lies_between_round_numbers():
    html, paths = drawn(plots.Plot("speed", "said", [line([1.01, 1.32])]))
    assert labels(html) == pytest.approx({"1.0": 0, "1.1": 25, "1.2": 50, "1.3": 75, "1.4": 100})
    assert paths[1] == "M500 975h0L1500 200"


def test_a_gap_breaks_a_line_and_a_night_alone_is_a_dot():
    _, paths = drawn(plots.Plot("speed", "said", [line([1.0, np.nan, 2.0, 2.0])]))
    assert paths[1] == "M250 1000h0M1250 0h0L1750 0"
    cut = plots.Line("#123456", np.array([0.25, 0.75]), np.array([1.0, 2.0]), np.array([True, True]))
    assert drawn(plots.Plot("speed", "said", [cut]))[1][1] == "M500 1000h0M1500 0h0"


def test_equal_values_are_in_the_middle_and_no_value_is_no_line():
    html, paths = drawn(plots.Plot("speed", "said", [line([3.0, 3.0])]))
    (height,) = {int(y) for y in re.findall(r"[ML]\d+ (\d+)", paths[1])}
    assert 300 < height < 700 and "3.0" in labels(html)
    assert drawn(plots.Plot("speed", "said", [line([np.nan])]))[1][1] == ""


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.0, 2.0], ["1.00", "1.25", "1.50", "1.75", "2.00"]),
        ([1.0, 900.0], ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000"]),
        ([1e-3, 1e6], ["0.001", "0.01", "0.1", "1", "10", "100", "1000", "1e+04", "1e+05", "1e+06"]),
    ],
)
def test_a_logarithmic_axis_is_even_in_ratios(values, told):
    html, _ = drawn(plots.Plot("speed", "said", [line(values)], log=True))
    found = labels(html)
    assert [float(label) for label in found] == pytest.approx([float(label) for label in told])
    heights = dict(zip(map(float, told), found.values(), strict=True))
    (low, at), *_, (high, up) = heights.items()
    for value, height in heights.items():
        assert (height - at) / (up - at) == pytest.approx(math.log(value / low) / math.log(high / low), abs=0.001)


def test_what_cannot_be_on_a_logarithmic_axis_is_a_gap():
    _, paths = drawn(plots.Plot("rate", "said", [line([1.0, 0.0, 2.0])], log=True))
    assert paths[1].count("M") == 2


def test_names_stay_text():
    hostile = '<script>"&'
    plot = plots.Plot(hostile, hostile, [line([1, 2])], [(0.5, hostile)], [(0.5, hostile)] * 2, [(0.1, hostile)])
    html = plots.html(plot)
    html += plots.lanes(hostile, hostile, [(hostile, [("", "x", hostile)])])
    assert "<script>" not in html and html.count("&lt;script&gt;&quot;&amp;") == 10


def test_each_place_says_what_it_was_and_has_its_width():
    html, _ = drawn(plots.Plot("speed", "said", [line([1, 2])], columns=[(0.5, "first"), (0.5, "second\nof two")]))
    assert '<i title="first"></i><i title="second\nof two"></i>' in html
    html, _ = drawn(plots.Plot("speed", "said", [line([1, 2])], columns=[(0.9, "long"), (0.1, "short")]))
    assert '<i style="flex-grow:0.90000" title="long">' in html
    assert 'alt="said"' in html


def test_points_differ_in_shape_where_there_are_branches():
    _, paths = drawn(plots.Plot("speed", "said", [line([1, 2], dots=6.0, shape="ring")]))
    assert paths[2] == paths[3] == "M500 1000h0M1500 0h0"
    svg = base64.b64decode(
        re.search(r"base64,([^\"]*)", plots.html(plots.Plot("a", "b", [line([1, 2], dash="7 4")])))[1]
    )
    assert b'stroke-dasharray="7 4"' in svg

"""The pictures of a report: what they show, that names in them stay names, and that they are files of their own."""

import re
import sys
from xml.etree import ElementTree

from analysis.reports.facts import build_report
from analysis.reports.html_report import CHARTS, Mark, draw, html, svg
from db.queries.cells import EVERYTHING
from tests.analysis.compare.judging import put_run
from tests.analysis.compare.test_cell_verdicts import MODELS
from tests.analysis.reports.conftest import DASHBOARD, HOSTILE, call, report_of
from tests.factories import CONFIGS, matrix, passing

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {"svg", "rect", "g", "path", "line", "text", "tspan"}


def parsed(drawn):
    return ElementTree.fromstring(drawn)  # noqa: S314 -- written here


def texts(drawn):
    return ["".join(found.itertext()) for found in parsed(drawn).iter(f"{SVG}text")]


def dots(drawn):
    """The marks that have a description: color, place in pixels, and what they say."""
    found = [item for item in parsed(drawn).iter(f"{SVG}path") if item.get("aria-roledescription") == "point"]
    return [(dot.get("fill"), float(dot.get("transform")[10:].split(",")[0]), dot.get("aria-label")) for dot in found]


def test_the_worst_cell_is_the_first_row_and_its_mark_says_how_much(nights):
    drawn = svg(report_of(nights), "changes")
    shown = texts(drawn)
    assert any(text.startswith("New is worse than base: 1 model broke (model05), latency in 1 of 24") for text in shown)
    assert any(text.startswith("Better: 1 model fixed (model06), latency in 1 of 24 models (-10.") for text in shown)
    labels = [text for text in shown if text.endswith(("device time, regressed", "compiled latency, improved"))]
    assert [label.rpartition(" ")[2] for label in labels] == ["regressed", "improved"]
    (worst, better) = dots(drawn)
    assert (worst[0], better[0]) == ("#b44a00", "#0b61a4")
    assert worst[1] > better[1]
    assert MODELS[3] in worst[2]
    assert re.search(r"\+10\.\d % device time, regressed, 95 % interval \+9\.\d \.\. \+10\.\d %$", worst[2])


def test_names_that_are_markup_stay_names_in_pictures(hostile):
    found = report_of(hostile, "one", "one")
    marks = [Mark(row, HOSTILE[3], 0.1, 0.0, 0.2, "calm", name) for row, name in enumerate(HOSTILE)]
    synthetic = draw("\n".join(HOSTILE), HOSTILE[:2], [HOSTILE[3]], HOSTILE, marks)
    for drawn in (svg(found, "suites"), synthetic):
        root = parsed(drawn)
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= TAGS
        names = {attribute for element in root.iter() for attribute in element.attrib}
        assert not [name for name in names if name.startswith("on") or name in ("href", "style")]
        assert "&lt;script&gt;" in drawn
    assert sorted(text for text in texts(synthetic) if text in HOSTILE) == sorted([*HOSTILE * 2, HOSTILE[3]])


def test_a_chart_is_written_as_svg_or_png(nights, tmp_path):
    for chart, kind, magic in zip(CHARTS, ("svg", "png"), (b"<svg ", b"\x89PNG\r\n"), strict=True):
        out = tmp_path / f"{chart}.{kind}"
        done = call(nights, "r11", "r12", "--picture", str(out), "--chart", chart)
        assert (done.exit_code, done.output) == (0, "")
        assert out.read_bytes().startswith(magic)


def test_what_is_missing_for_a_picture_is_one_line(nights, tmp_path, monkeypatch):
    done = call(nights, "r11", "r12", "--picture", str(tmp_path / "x.gif"))
    assert (done.exit_code, "x.gif: end it in .svg or .png" in done.output) == (2, True)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for kind in ("svg", "png"):
        done = call(nights, "r11", "r12", "--picture", str(tmp_path / f"x.{kind}"))
        assert (done.exit_code, "pip install vl-convert-python" in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert html(report_of(nights)).count("pip install vl-convert-python") == 2


def test_two_configs_of_one_side_are_a_report_too(store, tmp_path):
    """Two nights of one commit, in which the models are slower under the second config."""
    names = CONFIGS[0].name, CONFIGS[1].name
    made = [passing(which, slower=1.3 if which.config is CONFIGS[1] else 1.0) for which in matrix(MODELS[:6])]
    for minutes, name in enumerate("ab"):
        put_run(store, tmp_path, name, made, minutes=60 * minutes)
    with store.connect() as conn:
        found = build_report(conn, "b", "b", EVERYTHING, DASHBOARD, names)
    configs = str(tmp_path / "store.db")
    assert found.across == names
    assert {row.finding.verdict for row in found.rows if row.finding.dimension == "latency"} == {"regressed"}
    assert found.again.cells == ()
    assert f"mode=configs&from={names[0]}&to={names[1]}" in found.link
    assert "versus=configs" in found.rows[0].link
    text = html(found)
    assert re.search(rf"base {names[0]}<br>new {names[1]}", text)
    done = call(configs, "b", "b", "--across", *names)
    assert (done.exit_code, "New is worse than base" in done.output) == (0, True)
    assert f"base: <code>{names[0]}</code>" in done.output
    done = call(configs, "a", "b", "--across", *names)
    assert (done.exit_code, "two configs of one side" in done.output) == (2, True)


def test_dtype_and_device_are_filters_and_part_of_what_measures_again(nights):
    done = call(nights, "r11", "r12", "--dtype", "bfloat16", "--device", "cuda", "--model", MODELS[3])
    report = f"inductor-watch report r11 r12 --model {MODELS[3]} --dtype bfloat16 --device cuda --again-plan again.json"
    assert (done.exit_code, report in done.output) == (0, True)
    done = call(nights, "r11", "r12", "--dtype", "int8")
    assert "has no dtype 'int8'" in str(done.exception) + done.output

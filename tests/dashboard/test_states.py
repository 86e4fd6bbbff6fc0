"""What a page says when there is nothing to show, and that hostile names stay text."""

import sqlite3
from dataclasses import replace

import pytest

from db.engine import open_store
from tests.dashboard import stores
from tests.dashboard.conftest import ran, text_of
from tests.factories import cell, failing, night, passing

PAGES = ["", "compare", "model"]
EVERY_PAGE = [*PAGES, "trends", "regressions", "runs", "about"]


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_no_database_says_what_to_run(open_app, tmp_path, page):
    app = open_app(tmp_path / "absent.db", page)

    assert "no database here yet" in text_of(app)
    assert "make nightly" in app.code[0].value and "inductor-watch ingest data/" in app.code[0].value


def test_an_empty_database_says_what_to_run(open_app, tmp_path):
    open_store(tmp_path / "empty.db", write=True).dispose()

    app = open_app(tmp_path / "empty.db")

    assert "holds no runs" in text_of(app) and "make nightly" in app.code[0].value


def test_a_newer_schema_is_one_sentence(open_app, two_nights, tmp_path):
    path = tmp_path / "newer.db"
    path.write_bytes(two_nights.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    assert "newer than this program&#39;s: update inductor-watch" in text_of(open_app(path))


def test_a_file_that_is_no_database(open_app, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")

    assert "is not a database" in text_of(open_app(tmp_path / "notes.txt"))


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_an_unknown_commit_is_told_with_the_nearest(open_app, two_nights, page):
    app = open_app(two_nights, page, new="b2b2b2b3")

    assert "no night, run, branch, tag or commit is called &#39;b2b2b2b3&#39;" in text_of(app)
    assert app.selectbox(key="new_widget").value == "b2b2b2b3"


def test_an_unknown_base_is_told_and_new_is_shown_alone(open_app, two_nights):
    said = text_of(open_app(two_nights, base="nothing-like-it"))

    assert "Base: no night, run, branch, tag or commit is called &#39;nothing-like-it&#39;" in said
    assert "One side alone" in said


def test_an_unknown_filter_is_told_and_not_applied(open_app, two_nights):
    said = text_of(open_app(two_nights, suite="timmm"))

    assert "has suite &#39;timmm&#39;, which is not known here; nearest: timm" in said
    assert "Of 24 cells" in said


def test_no_overlap_is_one_sentence(open_app, tmp_path):
    bundles = [night(tmp_path, name, cells=[cell(name)], minutes=place) for place, name in enumerate(("one", "two"))]
    store = stores.store(tmp_path / "apart.db", bundles)

    app = open_app(store, base="one", new="two")

    assert "No cell is planned on both sides" in text_of(app)


def test_without_a_comparable_run_new_is_shown_alone(open_app, tmp_path):
    bundles = [night(tmp_path, name, cells=[cell(name)], minutes=place) for place, name in enumerate(("one", "two"))]
    store = stores.store(tmp_path / "apart.db", bundles)

    assert "One side alone" in text_of(open_app(store))


@pytest.mark.parametrize("page", PAGES)
def test_a_side_that_measured_nothing(open_app, two_nights, tmp_path, page):
    bundles = [
        night(tmp_path, "full", cells=stores.cells(), make=stores.measure(1)),
        stores.write_bundle(tmp_path, stores.header("bare", minutes=60), [], planned=stores.cells()),
    ]
    store = stores.store(tmp_path / "bare.db", bundles)

    app = open_app(store, page, base="full", new="bare")

    assert "missing" in text_of(app)
    assert "0\u202f%" not in text_of(app).replace("100\u202f%", "").replace("10 %", "") or page != ""


@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_stay_text(open_app, tmp_path, page):
    which = [cell(stores.HOSTILE), cell(stores.HOSTILE, suite="<img src=x onerror=alert(1)>")]

    def broken(item):
        found = failing(item, minutes=61, log_tail="<script>log</script>")
        return replace(found, failure=replace(found.failure, message="<script>message</script>"))

    bundles = [
        night(
            tmp_path,
            "one",
            cells=which,
            make=lambda item: passing(item, details={"compiled_kernels": [["<b>k</b>", 1, 2.0]]}),
        ),
        night(tmp_path, "two", minutes=60, cells=which, make=broken, branch="<i>main</i>", label="<u>synthetic</u>"),
    ]
    store = stores.store(tmp_path / "hostile.db", bundles)

    app = open_app(store, page, base="one", new="two", model=f"huggingface/{stores.HOSTILE}")

    protos = [part.proto for part in app.get("html")]
    html = "\n".join(proto.body for proto in protos if "<style>" not in proto.body)
    for tag in ("<script", "<img src=x", "<b>k", "<i>", "<u>"):
        assert tag not in html, tag
    assert "&lt;i&gt;main&lt;/i&gt;" in html or page == "model"
    if page == "model":
        assert app.title[0].value.replace("\\", "") == stores.HOSTILE
        assert "&lt;b&gt;k&lt;/b&gt;" in html


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("base", ["none", "previous"])
def test_filters_that_leave_nothing(open_app, tmp_path, page, base):
    bundles = [night(tmp_path, name, cells=[cell("bert")], minutes=place) for place, name in enumerate(("one", "two"))]
    bundles.append(night(tmp_path, "other", cells=[cell("bert", suite="timm")], branch="side", minutes=-60))
    store = stores.store(tmp_path / "narrow.db", bundles)

    app = open_app(store, page, base=base, suite="timm")

    said = text_of(app)
    assert page == "model" or any(
        words in said for words in ("Nothing to show", "Nothing to compare", "nothing was planned")
    )


def test_swapping_without_a_side_is_harmless(open_app, two_nights):
    app = open_app(two_nights, new="nothing-like-it")

    app.button(key="swap").click()

    assert "nothing-like-it" in text_of(ran(app))

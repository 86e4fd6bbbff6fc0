"""What a page says when there is nothing to show, and that hostile names stay text."""

import sqlite3
from dataclasses import replace

import pytest

from db.engine import open_store
from tests.dashboard import stores
from tests.dashboard.conftest import ran, text_of
from tests.factories import cell, failing, night, passing


def newer(path):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")


@pytest.mark.parametrize(
    ("prepare", "said", "command"),
    [
        (lambda path: path.unlink(), "no database here yet", "inductor-watch ingest FOLDER"),
        (lambda path: None, "holds no runs", "inductor-watch nightly"),
        (newer, "newer than this program: update inductor-watch", ""),
        (lambda path: path.write_text("hello"), "is not a database", ""),
    ],
    ids=["absent", "empty", "newer", "text"],
)
def test_a_store_that_cannot_be_shown_is_one_sentence_with_what_to_do(open_app, tmp_path, prepare, said, command):
    path = tmp_path / "store.db"
    open_store(path, write=True).dispose()
    prepare(path)
    app = open_app(path)
    assert said in text_of(app)
    assert command in "".join(block.value for block in app.code)


def test_an_unknown_commit_is_told_and_stays_in_its_box(open_app, two_nights):
    app = open_app(two_nights, new="b2b2b2b3")
    assert "no night, run, branch, tag, release or commit is called &#39;b2b2b2b3&#39;" in text_of(app)
    assert app.selectbox(key="new_widget").value == "b2b2b2b3"
    app.button(key="swap").click()
    assert "b2b2b2b3" in text_of(ran(app))


def test_a_side_that_measured_nothing(open_app, tmp_path):
    bare = stores.write_bundle(tmp_path, stores.header("bare", minutes=60), [], planned=stores.cells())
    store = stores.store(tmp_path / "bare.db", [stores.run(tmp_path, "full"), bare])
    for page in ("", "compare", "model"):
        said = text_of(open_app(store, page, base="full", new="bare"))
        assert "missing" in said
        assert "0\u202f%" not in said.replace("100\u202f%", "").replace("10 %", "") or page


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A store of two nights all names of which are markup."""
    folder = tmp_path_factory.mktemp("hostile")
    which = [cell(stores.HOSTILE), cell(stores.HOSTILE, suite="<img src=x onerror=alert(1)>")]

    def broken(item):
        found = failing(item, minutes=61, log_tail="<script>log</script>")
        return replace(found, failure=replace(found.failure, message="<script>message</script>"))

    def worked(item):
        return passing(item, details={"compiled_kernels": [["<b>k</b>", 1, 2.0]]})

    names = {"branch": "<i>main</i>", "label": "<u>synthetic</u>"}
    bundles = [
        night(folder, "one", cells=which, make=worked, **names),
        night(folder, "two", minutes=60, cells=which, make=broken, **names),
    ]
    return stores.store(folder / "hostile.db", bundles)


@pytest.mark.parametrize("page", ["", "compare", "model", "trends", "runs"])
def test_hostile_names_stay_text(open_app, hostile, page):
    app = open_app(hostile, page, base="one", new="two", model=f"huggingface/{stores.HOSTILE}")
    html = "\n".join(part.proto.body for part in app.get("html") if "<style>" not in part.proto.body)
    for tag in ("<script", "<img src=x", "<b>k", "<i>", "<u>"):
        assert tag not in html, tag
    assert not any(part.proto.unsafe_allow_javascript for part in app.get("html"))
    if page == "model":
        assert app.title[0].value.replace("\\", "") == stores.HOSTILE
        assert r"\*\_" in app.title[0].value and r"\$x\$" in app.title[0].value, "it is no Markdown"
        assert "&lt;b&gt;k&lt;/b&gt;" in html


def test_filters_that_leave_nothing(open_app, tmp_path):
    bundles = [night(tmp_path, name, cells=[cell("bert")], minutes=place) for place, name in enumerate(("one", "two"))]
    bundles.append(night(tmp_path, "other", cells=[cell("bert", suite="timm")], branch="side", minutes=-60))
    store = stores.store(tmp_path / "narrow.db", bundles)
    for page, words in (("", "Nothing to show"), ("compare", "nothing was planned")):
        assert words in text_of(open_app(store, page, base="none", new="two", suite="timm"))
    assert "Nothing to compare" in text_of(open_app(store, base="previous", new="two", suite="timm"))


def test_a_filter_shows_the_newest_night_that_has_a_cell_under_it(open_app, tmp_path):
    bundles = [
        night(tmp_path, f"n{at}", minutes=60 * at, commit=f"c{at}".ljust(40, "0"), cells=[cell(dtype=dtype)])
        for at, dtype in enumerate(["bfloat16", "float32"] * 2 + ["bfloat16"])
    ]
    store = stores.store(tmp_path / "gaps.db", bundles)
    said = text_of(open_app(store, dtype="float32"))
    assert "The latest night does not have a cell under these filters" in said
    assert ">c300000000</a> (n3)" in said
    assert "The latest night does not" not in text_of(open_app(store, dtype="bfloat16"))
    # A side that is asked for leads to the nearest nights that have one.
    said = text_of(open_app(store, page="runs", dtype="bfloat16", new="n1", base="none"))
    assert "has no cell under these filters" in said
    for word, night_id in (("newest", "n4"), ("next", "n2"), ("previous", "n0")):
        assert f'{word}: <a href="./runs?base=none&amp;new={night_id}&amp;dtype=bfloat16"' in said


def test_a_model_that_new_lacks_links_to_a_night_that_has_it(open_app, tmp_path):
    made = [night(tmp_path, f"n{at}", cells=[cell(model)], minutes=at) for at, model in enumerate(("gone", "other"))]
    store = stores.store(tmp_path / "gone.db", made)
    said = text_of(open_app(store, page="model", model="huggingface/gone", new="n1"))
    assert "did not plan this model" in said
    assert 'new=n0&amp;model=huggingface/gone"' in said
    assert "New is the newest night that does" in text_of(open_app(store, page="model", model="gone"))
    assert "There is no such model" in text_of(open_app(store, page="model", model="gon"))

"""What is computed ahead: the same as what a page computes, found by pages until new data comes, and after all pages."""

import shutil
import threading

import pandas as pd
import pytest

from analysis.compare.verdicts import judge_sides
from analysis.reports.permalinks import fixed_side
from dashboard import ahead, data, turns
from dashboard.pages.overview import headline
from db.engine import open_store
from db.errors import SideError
from db.ingest import ingest_bundle
from db.queries.filters import CellFilter
from tests.dashboard import stores
from tests.dashboard.conftest import plain, ran


@pytest.fixture
def wished(monkeypatch):
    """What pages wish for, not done yet."""
    found = []
    monkeypatch.setattr(ahead.ahead, "wish", lambda pieces: found.append(list(pieces)))
    return found


def fixed_pair(store):
    return tuple(fixed_side(store.side(name)) for name in ("latest~1", "latest"))


def test_what_a_page_wishes_for_is_all_that_swapping_asks_for(open_app, two_nights, wished, monkeypatch):
    app = open_app(two_nights)
    for piece in wished[-1]:
        ahead.do(piece)

    def computed(*_, **__):
        raise AssertionError("computed again")

    for name in ("compare", "judge_cells", "group_intervals", "compared_cards", "recent"):
        monkeypatch.setattr(data, name, computed)
    app.button(key="swap").click()
    assert "on both sides" in plain(ran(app))


def test_what_was_computed_ahead_equals_what_is_computed_afresh(open_app, two_nights):
    open_app(two_nights)
    store = data.opened()
    base, new = fixed_pair(store)
    pieces = ahead.of_pair(store, (new, base), CellFilter(), headline.COMPARED)
    kept = [piece() for piece in pieces]
    assert pieces[0]() is kept[0], "kept, not computed twice"
    fresh = judge_sides(store.engine, store.side(new), store.side(base))
    pd.testing.assert_frame_equal(store.judgement(new, base).cells, fresh.cells, check_exact=True)
    assert (dict(fresh.noise), dict(fresh.drift)) == (dict(kept[0].noise), dict(kept[0].drift))
    data.st.cache_resource.clear()
    again = [piece() for piece in pieces]
    pd.testing.assert_frame_equal(kept[1], again[1], check_exact=True)
    assert kept[2:4] == again[2:4]


def test_new_data_makes_what_was_computed_ahead_old(open_app, two_nights, tmp_path):
    place = shutil.copy(two_nights, tmp_path / "store.db")
    open_app(place)
    before = data.opened()
    pair = fixed_pair(before)
    known = before.judgement(*pair)
    writer = open_store(place, write=True)
    make = stores.measure(1, ("gpt2", "t5"), seed=9)
    ingest_bundle(writer, stores.night(tmp_path, "more", minutes=2880.0, cells=stores.cells(), make=make, seed=9))
    writer.dispose()
    after = data.opened()
    assert after.stamp != before.stamp
    assert fixed_pair(after) != pair
    assert after.judgement(*pair) is not known


def test_pieces_are_done_in_order_once_started_and_the_newest_wish_counts():
    found, done, held = [], threading.Event(), threading.Event()
    worker = ahead.Ahead()
    worker.wish([lambda: found.append("not heard")])
    worker.start()

    def fails():
        held.wait(5)
        raise SideError("gone")

    worker.wish([fails, lambda: found.append("replaced")])
    # The first piece is under way or waits for its moment; what follows it is not wanted any more.
    worker.wish([lambda: found.append("first"), lambda: found.append("second"), done.set])
    held.set()
    assert done.wait(10)
    assert found == ["first", "second"]


def test_pages_go_first():
    with turns.taken():
        assert not turns.quiet(0.0, 0.05)
    assert turns.quiet(0.0, 1.0)
    assert not turns.quiet(5.0, 0.05), "a page was there just now"

"""The figures of the last nights: over groups that are alike, gaps where there is nothing, no other branch or machine."""

import pytest

from analysis.history.branch_series import RATE, nights_up_to, recent
from db.nights import list_nights
from db.queries.series import suite_history
from db.queries.sides import resolve_side
from tests.analysis.compare.judging import put_run
from tests.factories import TESTBED, cell, failing, passing

CELLS = [cell("bert"), cell("gpt2"), cell("resnet", suite="timm")]


@pytest.fixture
def nights(store, tmp_path):
    """Three nights of main, one of another branch and one on another machine between them; where 0 is, nothing compiled."""
    elsewhere, aside = {"testbed": {**TESTBED, "gpu": "another"}}, {"branch": "other"}
    told = [("one", (2.0, 8.0, 4.0), {}), ("elsewhere", (9.0, 9.0, 9.0), elsewhere), ("aside", (9.0, 9.0, 9.0), aside)]
    told += [("two", (0, 8.0, 2.0), {}), ("three", (2.0, 2.0, 2.0), {})]
    for place, (name, speedups, changes) in enumerate(told):
        made = [
            passing(which, metrics={"speedup": speedup, "compiled_ms": 1.0}) if speedup else failing(which)
            for which, speedup in zip(CELLS, speedups, strict=True)
        ]
        put_run(store, tmp_path, name, made, minutes=60 * place, **changes)
    return list_nights(store)


def test_averages_are_compared_with_the_newest_night_over_equal_groups(store, nights):
    side = resolve_side(store, "three")
    chosen = nights_up_to(nights, side)
    found = recent(suite_history(store, branch="main"), chosen, side, (RATE, "speedup"))

    assert [night.night for night in chosen] == ["one", "two", "three"]
    assert [found.night for found in nights_up_to(nights, resolve_side(store, "one"))] == ["one"]
    assert found[RATE] == pytest.approx((1, 2 / 3, 1))
    # bert and gpt2 are one group, resnet the other. Night one: (2 x 8 x 4) over (2 x 2 x 2) of three cells. Night two lost a
    # cell of the first group: only the second counts, which was the same.
    assert found["speedup"] == pytest.approx((8 ** (1 / 3), 1.0, 1.0))

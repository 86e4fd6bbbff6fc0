"""A side of several runs: every page shows the same values, which are means over the runs."""

import re

import pytest

from tests.dashboard import stores
from tests.dashboard.conftest import plain, text_of

SIDES = {"base": f"main@{stores.SHAS[0]}", "new": f"main@{stores.SHAS[1]}"}
MODEL = {"model": "huggingface/gpt2", "setting": "inference,bfloat16,cuda,8"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two commits, three runs of each, whose values differ from run to run; gpt2 is slower at the second commit."""
    folder = tmp_path_factory.mktemp("several")
    bundles = []
    for index in range(6):
        head = {"commit": stores.SHAS[int(index >= 3)], "slower": ("gpt2",) if index >= 3 else ()}
        bundles.append(stores.run(folder, f"run-{index}", index / 24, seed=index, **head))
    return stores.store(folder / "store.db", bundles)


def test_model_says_what_stands_behind_the_values(open_app, store):
    both = plain(open_app(store, "model", **MODEL, **SIDES, config="default"))
    alone = plain(open_app(store, "model", **MODEL, base="none", new=SIDES["new"], config="default"))
    single = plain(open_app(store, "model", **MODEL, base="run-0", new="run-5", config="default"))
    assert "means of several measurements (base 3, new 3)" in both
    assert "mean of 3 / 3 runs" in text_of(open_app(store, "compare", **SIDES))
    assert re.findall(r"(base|new), 2026-\d\d-\d\d \d\d:\d\d UTC(run-\d)pass", both) == [
        *(("base", f"run-{number}") for number in range(3)),
        *(("new", f"run-{number}") for number in range(3, 6)),
    ]
    assert "Each run" not in single
    assert "means of several measurements (new 3)" in alone
    assert "means of several measurements" not in single

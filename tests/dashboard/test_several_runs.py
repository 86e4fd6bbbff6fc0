"""A side of several runs: every page shows the same values, which are means over the runs."""

import re

import pytest

from tests.dashboard import stores
from tests.dashboard.conftest import cells_of, plain, table_of, text_of

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


def numbers(text):
    return [float(number) for number in re.findall(r"[-+]?\d+\.?\d*", text.replace("\N{MINUS SIGN}", "-"))]


TITLES = {"compiled latency": "compiled_ms", "device time": "compiled_kernel_ms", "cold compile": "compile_cold_s"}
TITLES |= {"peak memory": "compiled_peak_bytes", "speedup": "speedup"}


def test_compare_and_model_show_the_same_values_and_changes(open_app, store):
    compare = SIDES | {"mode": "configs", "from": "default", "to": "cudagraphs"}
    app = open_app(store, "compare", columns=[*TITLES.values()], q="gpt2 inference", **compare)
    table = cells_of(app)
    (cell,) = table[table["config"] == "cudagraphs"].to_dict("records")
    assert "mean of 3 / 3 runs" in text_of(app)
    model = MODEL | SIDES | {"config": ["default", "cudagraphs"], "versus": "configs"}
    shown = {title: cells for title, *cells in table_of(open_app(store, "model", **model), "Metrics")}
    for title in TITLES:
        base, new, change, interval, _ = shown[title]
        of_model = [number for text in (base, new, change, interval) for number in numbers(text)]
        assert numbers(cell[title]) == of_model[:5], title


def test_model_says_what_stands_behind_the_values(open_app, store):
    both = plain(open_app(store, "model", **MODEL, **SIDES, config="default"))
    alone = plain(open_app(store, "model", **MODEL, base="none", new=SIDES["new"], config="default"))
    single = plain(open_app(store, "model", **MODEL, base="run-0", new="run-5", config="default"))
    assert "means of several measurements (base 3, new 3)" in both
    assert re.findall(r"(base|new), 2026-\d\d-\d\d \d\d:\d\d UTC(run-\d)pass", both) == [
        *(("base", f"run-{number}") for number in range(3)),
        *(("new", f"run-{number}") for number in range(3, 6)),
    ]
    assert "Each run" not in single
    assert "means of several measurements (new 3)" in alone
    assert "means of several measurements" not in single

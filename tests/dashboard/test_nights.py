"""Sides of several runs: a night on several GPUs, and a commit whose runs have a mean that every page shows."""

import re

import pytest

from tests.dashboard import stores
from tests.dashboard.conftest import cells_of, plain, ran, table_of, text_of
from tests.factories import TESTBED


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """Two GPUs, two GPUs again, then three, to which half of the models move."""
    folder, bundles = tmp_path_factory.mktemp("gpus"), []
    models = sorted({which.model for which in stores.cells()})
    for index, gpus in enumerate((2, 2, 3)):
        for gpu in range(gpus):
            mine = [which for which in stores.cells() if models.index(which.model) % gpus == gpu]
            head = {"testbed": {**TESTBED, "gpu_index": gpu}, "commit": stores.SHAS[index], "seed": index}
            head |= {"night": f"on{gpus}-{index}", "which": mine, "slower": ("gpt2",) if index else ()}
            bundles.append(stores.run(folder, f"on{gpus}-{index}-gpu{gpu}", index, **head))
    return stores.store(folder / "store.db", bundles)


def test_nights_are_compared_as_a_whole_and_picked_before_their_runs(open_app, moved):
    app = open_app(moved)
    said = plain(app)
    assert "24 cells: " in said and "(night on2-1, 2 GPUs)" in said and "(night on3-2, 3 GPUs)" in said
    labels = app.selectbox(key="new_widget").options
    assert labels[:2] == ["latest night", "branch main: its newest commit"]
    names = [name.rpartition(" · ")[2] for name in labels[2:]]
    gpus = {"on3-2": 3, "on2-1": 2, "on2-0": 2}
    assert names == [*gpus, *(f"{night}-gpu{gpu}" for night in gpus for gpu in reversed(range(gpus[night])))]
    assert "3 x Synthetic GPU" in labels[2]
    app.selectbox(key="base_widget").select("on2-0")
    ran(app)
    assert app.query_params["base"] == "on2-0" and "(night on2-0, 2 GPUs)" in plain(app)


def test_the_history_of_a_model_is_of_the_gpu_it_was_on(open_app, moved):
    for page_of, runs in (("bert", "3 runs"), ("vit_base", "1 run")):
        suite = "timm" if page_of == "vit_base" else "huggingface"
        said = plain(open_app(moved, "model", model=f"{suite}/{page_of}", config="default"))
        assert f"{runs} " in said and "on new's testbed" in said
    assert "2 runs on other testbeds left out." in said


SIDES = {"base": f"main@{stores.SHAS[0]}", "new": f"main@{stores.SHAS[1]}"}
MODEL = {"model": "huggingface/gpt2", "setting": "inference,bfloat16,cuda,8"}


@pytest.fixture(scope="module")
def several(tmp_path_factory):
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


def test_compare_and_model_show_the_same_values_and_changes(open_app, several):
    compare = SIDES | {"mode": "configs", "from": "default", "to": "cudagraphs"}
    app = open_app(several, "compare", columns=[*TITLES.values()], q="gpt2 inference", **compare)
    table = cells_of(app)
    (cell,) = table[table["config"] == "cudagraphs"].to_dict("records")
    assert "mean of 3 / 3 runs" in text_of(app)
    model = MODEL | SIDES | {"config": ["default", "cudagraphs"], "versus": "configs"}
    shown = {title: cells for title, *cells in table_of(open_app(several, "model", **model), "Metrics")}
    for title in TITLES:
        base, new, change, interval, _ = shown[title]
        of_model = [number for text in (base, new, change, interval) for number in numbers(text)]
        assert numbers(cell[title]) == of_model[:5], title

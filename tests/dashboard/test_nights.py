"""Nights on several GPUs: one choice in the pickers, one side on the pages."""

import pytest

from tests.dashboard import stores
from tests.dashboard.conftest import plain, ran
from tests.factories import TESTBED, cell


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


def test_a_night_on_other_gpus_alone_is_no_base_unless_asked_for(open_app, tmp_path):
    bundles = [
        stores.night(
            tmp_path, name, minutes=60 * gpu, cells=[cell()], testbed={"gpu_index": gpu}, night=f"{name}-night"
        )
        for gpu, name in enumerate(("first", "second"))
    ]
    store = stores.store(tmp_path / "store.db", bundles)
    assert "No earlier night on this testbed" in plain(open_app(store))
    assert "1 of 1 cuda cells" in plain(open_app(store, base="first"))


def test_the_history_of_a_model_is_of_the_gpu_it_was_on(open_app, moved):
    for page_of, runs in (("bert", "3 runs"), ("vit_base", "1 run")):
        suite = "timm" if page_of == "vit_base" else "huggingface"
        said = plain(open_app(moved, "model", model=f"{suite}/{page_of}", config="default"))
        assert f"{runs} " in said and "on new's testbed" in said
    assert "2 runs on other testbeds left out." in said

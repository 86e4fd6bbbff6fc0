"""What the model page says of eager runs that moved: whether it is another model, and the change as it was measured."""

import re
from dataclasses import replace

import pytest

from tests.dashboard import stores
from tests.dashboard.conftest import plain


@pytest.fixture
def page(open_app, tmp_path):
    """The words of gpt2's page, where both of its latencies in the newest night are so many times those of the other."""

    def made(times):
        bundles = stores.repeats(tmp_path)
        for index, factor in enumerate((1.0, times)):
            make = slower("gpt2", factor, stores.measure(1440.0 * index + 1, seed=index))
            head = {"minutes": 1440.0 * index, "commit": stores.SHAS[index]}
            bundles.append(stores.night(tmp_path, f"night-{index}", cells=stores.cells(), make=make, **head))
        path = stores.store(tmp_path / "store.db", bundles)
        return " ".join(plain(open_app(path, "model", model="huggingface/gpt2", config="default")).split())

    return made


def slower(model, factor, make):
    """What `make` makes, with the latencies of one model multiplied."""

    def made(which):
        found = make(which)
        if which.model != model:
            return found
        times = {name: factor * found.metrics[name] for name in ("eager_ms", "compiled_ms")}
        return replace(found, metrics=found.metrics | times, samples={})

    return made


def test_an_eager_run_that_stayed_is_not_mentioned(page):
    assert "of the same processes" not in page(1.0)


def test_a_slower_eager_run_asks_for_another_model_beside_the_raw_change(page):
    said = page(1.5)
    assert re.search(r"Eager of the same processes: \S+ ms -> \S+ ms \(\+[45]\d\.\d %\): another model\? ", said)
    raw, left = re.search(r"Compiled: \+(\S+) % as measured, (\S+) % adjusted for eager\.", said).groups()
    assert float(raw) == pytest.approx(50, abs=5) and float(left) < float(raw)

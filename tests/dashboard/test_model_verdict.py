"""What the model page says of eager runs that moved: whether it is another model, and the change as it was measured."""

import re
from dataclasses import replace

import pytest

from tests.dashboard import stores
from tests.dashboard.conftest import plain


def slower(model, factor, make):
    """What `make` makes, with the latencies of one model multiplied."""

    def made(which):
        found = make(which)
        if which.model != model:
            return found
        times = {name: factor * found.metrics[name] for name in ("eager_ms", "compiled_ms")}
        return replace(found, metrics=found.metrics | times, samples={})

    return made


def test_a_slower_eager_run_asks_for_another_model_beside_the_raw_change(open_app, tmp_path):
    bundles = stores.repeats(tmp_path)
    for index, factor in enumerate((1.0, 1.5)):
        make = slower("gpt2", factor, stores.measure(1440.0 * index + 1, seed=index))
        head = {"minutes": 1440.0 * index, "commit": stores.SHAS[index]}
        bundles.append(stores.night(tmp_path, f"night-{index}", cells=stores.cells(), make=make, **head))
    path = stores.store(tmp_path / "store.db", bundles)
    said = " ".join(plain(open_app(path, "model", model="huggingface/gpt2", config="default")).split())
    assert re.search(r"Eager of the same processes: \S+ ms -> \S+ ms \(\+[45]\d\.\d %\): another model\? ", said)
    raw, left = re.search(r"Compiled: \+(\S+) % as measured, (\S+) % adjusted for eager\.", said).groups()
    assert float(raw) == pytest.approx(50, abs=5) and float(left) < float(raw)

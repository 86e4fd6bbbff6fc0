"""What tests of jobs share."""

from __future__ import annotations

import pytest

from tests.analysis.compare.test_verdicts import MODELS, make_run
from tests.factories import failing, new_store


@pytest.fixture(scope="session")
def nights_with_losses(tmp_path_factory):
    """A database of twelve quiet nights and one in which a model got slower and another broke. Use a copy."""
    folder = tmp_path_factory.mktemp("nights")
    store = new_store(folder / "store.db")
    for number in range(12):
        make_run(store, folder, number)
    make_run(store, folder, 12, slower={MODELS[4]: {"compiled_ms": 1.1}, MODELS[7]: failing})
    store.dispose()
    return folder / "store.db"

"""Stores in a file. What differs between databases is read in `db`; `either` has a few answers on a server, too."""

from __future__ import annotations

import pytest

from tests.db.conftest import location
from tests.db.conftest import store as either
from tests.factories import new_store

__all__ = ["either", "location"]


@pytest.fixture
def store(tmp_path):
    """A new, empty store, open for writing."""
    engine = new_store(tmp_path / "store.db")
    yield engine
    engine.dispose()

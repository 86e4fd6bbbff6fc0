"""A fresh store on disk for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.factories import new_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """An empty store, open for writing; its bundles may go to the same folder."""
    engine = new_store(tmp_path / "store.db")
    yield engine
    engine.dispose()

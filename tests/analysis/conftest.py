"""Stores in a file: what differs between databases is read in `db`."""

from functools import cache

import pytest
import vl_convert

from tests.factories import new_store


@pytest.fixture
def store(tmp_path):
    """A new, empty store, open for writing."""
    engine = new_store(tmp_path / "store.db")
    yield engine
    engine.dispose()


@pytest.fixture(scope="session", autouse=True)
def _one_bundle():
    """Every site has the same scripts; to bundle them takes longer than all its pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "javascript_bundle", cache(vl_convert.javascript_bundle))
        yield

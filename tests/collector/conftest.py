"""What tests of the collector share."""

import pytest


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Have Inductor compile into a cache of the test's own."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

"""The stores of `tests/db`: what is said of two sides is the same on both databases."""

from __future__ import annotations

from tests.db.conftest import location, store

__all__ = ["location", "store"]

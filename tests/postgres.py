"""A PostgreSQL server for the test session, and an empty, migrated database of it for a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.postgres import NoServerError, Server, start


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The session's server; what wants one is skipped where there is none."""
    try:
        server = start()
    except NoServerError as reason:
        pytest.skip(f"PostgreSQL: {reason}")
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """The URL of an empty store on the server."""
    url = postgres.migrated()
    yield url
    postgres.drop(url)

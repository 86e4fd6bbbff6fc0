"""A fresh store for every test that asks for one: in a file, and on a server where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from benchmarks.postgres import Server
from db.engine import open_store
from tests.factories import new_store


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is: the path of a file, or the URL of a database on a server."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    new_store(tmp_path / "store.db").dispose()
    return str(tmp_path / "store.db")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A store that a module fills once; its tests only read it."""
    if request.param == "sqlite":
        engine = new_store(tmp_path_factory.mktemp("shared") / "store.db")
    else:
        engine = open_store(request.getfixturevalue("postgres").migrated(), write=True)
    yield engine
    engine.dispose()


@pytest.fixture
def store(location: str, opened: Callable[..., Engine]) -> Engine:
    """An empty store, open for writing; its bundles may go to the test's own folder."""
    return opened(location, write=True)


@pytest.fixture
def opened() -> Iterator[Callable[..., Engine]]:
    """A way to open stores, for reading unless told otherwise, that are closed after the test."""
    with ExitStack() as stack:

        def opened(place: Path | str, *, write: bool = False, **options: Any) -> Engine:
            engine = open_store(place, write=write, **options)
            stack.callback(engine.dispose)
            return engine

        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def blank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place where no tables are yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "blank.db")
        return
    server: Server = request.getfixturevalue("postgres")
    url = server.blank()
    yield url
    server.drop(url)

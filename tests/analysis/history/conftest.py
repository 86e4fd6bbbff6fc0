"""Histories for tests: one without nights, and one with twelve quiet ones."""

import pytest

from tests.analysis.history.histories import TITLES, History, copied


@pytest.fixture(scope="package")
def templates(tmp_path_factory):
    """Both histories, made once; tests add nights to copies."""
    empty = History(tmp_path_factory.mktemp("empty"), titles=TITLES)
    empty.import_commits()
    quiet = copied(empty, tmp_path_factory.mktemp("quiet"))
    quiet.nights(0, 12)
    return empty, quiet


@pytest.fixture
def history(templates, tmp_path):
    return copied(templates[0], tmp_path)


@pytest.fixture
def quiet(templates, tmp_path):
    return copied(templates[1], tmp_path)

"""The shipped bundles give the answers that they gave before the code was reorganised (issue C)."""

from __future__ import annotations

import pytest

from tests.golden.answers import QUESTIONS, answer, expected, store


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return store(tmp_path_factory.mktemp("shipped"))


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_the_answer_is_the_same(question, database):
    assert answer(question, database) == expected(question)

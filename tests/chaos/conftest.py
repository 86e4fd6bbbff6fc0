"""Random numbers for the chaos tests."""

import random

import pytest

from tests.chaos.world import SEED


@pytest.fixture
def rng(request):
    """Random numbers that depend on the seed and the test alone."""
    return random.Random(f"{SEED}/{request.node.name}")

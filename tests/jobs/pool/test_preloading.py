"""What the fork server imports for a plan: a name that does not exist would be passed over in silence, so all are checked."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest

from collector.zoo.registry import all_models
from collector.zoo.spec import forbid_hubs
from jobs.pool.testbeds import preload_for
from tests.factories import cell


def planned(specs):
    return [cell(spec.name, suite=spec.suite) for spec in specs]


WHOLE = preload_for(planned(all_models()), "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE.libraries)
def test_a_library_that_is_named_can_be_imported_where_it_is_installed(name):
    if not find_spec(name.partition(".")[0]):
        pytest.skip(f"{name} is not installed: pip install {name}")
    forbid_hubs()
    try:
        importlib.import_module(name)
    except ImportError as error:
        # The builders of a library that is not here: nothing would be gained by importing them.
        assert error.name, f"{name} lacks a name of its own"
        assert not find_spec(error.name.partition(".")[0]), error


@pytest.mark.skipif(not find_spec("transformers"), reason="transformers is not installed: pip install -e '.[zoo]'")
@pytest.mark.slow
def test_a_class_that_is_named_is_one_of_its_library():
    forbid_hubs()
    for spelled in WHOLE.classes:
        module, _, name = spelled.partition(":")
        # Listed by the library without loading it: its classes are loaded one by one when they are asked for.
        assert name in dir(importlib.import_module(module)), spelled

"""What the fork server imports for a plan; a name that is none would be passed over in silence, so they are checked here."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest

from collector.zoo.registry import all_models, suites
from collector.zoo.spec import forbid_hubs
from jobs.pool.testbeds import preload_for
from tests.factories import cell

WHOLE = preload_for([cell(spec.name, suite=spec.suite) for spec in all_models()], "cuda")


def is_there(module):
    return find_spec(module.partition(".")[0]) is not None


def test_the_whole_zoo_needs_torch_and_the_libraries_of_its_suites():
    assert {"torch", "transformers", "timm", "torchvision"} <= set(WHOLE.libraries)
    assert WHOLE.device == "cuda"
    assert len(WHOLE.classes) > 20


def test_everything_is_named_once_and_in_a_fixed_order():
    assert len(set(WHOLE.libraries)) == len(WHOLE.libraries)
    assert len(set(WHOLE.classes)) == len(WHOLE.classes)
    backwards = [cell(spec.name, suite=spec.suite) for spec in reversed(all_models())]
    assert preload_for(backwards, "cuda") == WHOLE


@pytest.mark.parametrize("name", WHOLE.libraries)
def test_a_library_that_is_named_can_be_imported_where_it_is_installed(name):
    if not is_there(name):
        pytest.skip(f"{name} is not installed: pip install {name}")
    forbid_hubs()
    try:
        importlib.import_module(name)
    except ImportError as error:
        # The builders of a library that is not here: nothing would be gained by importing them.
        assert error.name, f"{name} lacks a name of its own"
        assert not is_there(error.name), error


@pytest.mark.skipif(not is_there("transformers"), reason="transformers is not installed: pip install -e '.[zoo]'")
@pytest.mark.slow
def test_a_class_that_is_named_is_one_of_its_library():
    forbid_hubs()
    for spelled in WHOLE.classes:
        module, _, name = spelled.partition(":")
        # Listed by the library without loading it: its classes are loaded one by one when they are asked for.
        assert name in dir(importlib.import_module(module)), spelled


@pytest.mark.parametrize("suite", suites())
def test_a_plan_of_one_suite_names_no_other_suites_library(suite):
    specs = [spec for spec in all_models() if spec.suite == suite]
    found = preload_for([cell(spec.name, suite=suite) for spec in specs], "cpu")
    libraries = {name for name in found.libraries if not name.startswith("collector.")}
    assert libraries == {name for spec in specs for name in spec.needs}


def test_an_unknown_model_is_left_to_its_own_cell():
    assert preload_for([cell("NoSuchModel"), cell("x", suite="nosuch")], "cpu") == preload_for([], "cpu")

"""What pip and uv print when something does not install, made into one line."""

from __future__ import annotations

import pytest

from jobs.builds.installer import conflict, constraint_files, last_message

CONFLICT = """Looking in links: /wheels

The conflict is caused by:
    The user requested torch==9.2.0
    synthetic-zoo 1.0 depends on torch<9
    The user requested (constraint) {constraint}

To fix this you could try to:
1. loosen the range of package versions you've specified

ERROR: Cannot install torch==9.2.0 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/
"""
UV = """error: No solution found when resolving dependencies
  cause: Because only zoo==1.0 is available and torch>=9.4.0 depends on zoo<1, we can conclude that torch>=9.4.0 cannot be used.
         And because you require torch==9.4.0, we can conclude that your requirements are unsatisfiable.

  hint: Pre-releases are available
"""


def test_what_excludes_each_other_is_listed_without_pips_advice():
    said = conflict(CONFLICT.format(constraint="torch<=2.14.1"), [])
    assert said == (
        "these exclude each other: torch==9.2.0; synthetic-zoo 1.0 depends on torch<9; the constraint torch<=2.14.1"
    )


@pytest.mark.parametrize("line", ["torch<=2.14.1", "Torch <= 2.14.1  # why", "# torch\nnumpy<3\ntorch<= 2.14.1"])
def test_a_constraint_comes_with_the_file_that_holds_it(line, tmp_path):
    (tmp_path / "one.txt").write_text("numpy<3\n")
    (tmp_path / "two.txt").write_text(line + "\n")
    places = [str(tmp_path / name) for name in ("missing.txt", "one.txt", "two.txt")]
    said = conflict(CONFLICT.format(constraint="torch<=2.14.1"), places)
    assert said.endswith(f"the constraint torch<=2.14.1 in {places[2]}")


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        (["https://index.invalid/c.txt"], [], "torch<=2.14.1 in https://index.invalid/c.txt"),
        (["a.txt", "b.txt"], [], "torch<=2.14.1"),
        (["caps.txt"], ["torch<=2.14.1"], "the constraint torch<=2.14.1, as it is installed here"),
    ],
)
def test_a_constraint_without_a_known_file(files, own, expected):
    assert conflict(CONFLICT.format(constraint="torch<=2.14.1"), files, own).endswith(expected)
    assert conflict("ERROR: No matching distribution found for torch==9.9.9", files) is None


def test_pips_configuration_names_constraints_by_file_and_variable():
    told = "global.constraint='/etc/caps.txt'\nglobal.cert='/x'\n:env:.constraint='a.txt b.txt'\ninstall.constraint='c.txt'"
    assert constraint_files(told) == ["a.txt", "b.txt", "/etc/caps.txt", "c.txt"]
    assert constraint_files("") == []


def test_the_last_message_is_uvs_cause_without_its_hints_or_pips_last_error():
    said = last_message(UV)
    assert said.startswith("Because only zoo==1.0 is available")
    assert said.endswith("require torch==9.4.0, we can conclude that your requirements are unsatisfiable.")
    assert last_message("ERROR: one\nERROR: ResolutionImpossible: for help visit x") == "one"
    assert last_message("Traceback\n  File x\nImportError: no libsynthetic\n") == "ImportError: no libsynthetic"
    assert last_message("") == "no output"

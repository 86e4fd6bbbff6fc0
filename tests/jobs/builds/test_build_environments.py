"""What pip and uv print when something does not install, made into one line."""

from __future__ import annotations

from jobs.builds.build_environments import last_message

CONFLICT = """Looking in links: /wheels

The conflict is caused by:
    The user requested torch==9.2.0
    synthetic-zoo 1.0 depends on torch<9
    The user requested (constraint) torch<=2.14.1

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
    assert last_message(CONFLICT) == (
        "these exclude each other: The user requested torch==9.2.0; synthetic-zoo 1.0 depends on torch<9; "
        "The user requested (constraint) torch<=2.14.1"
    )


def test_the_last_message_is_the_cause_without_hints():
    said = last_message(UV)
    assert said.startswith("Because only zoo==1.0 is available")
    assert said.endswith("require torch==9.4.0, we can conclude that your requirements are unsatisfiable.")
    assert last_message("ERROR: zero\nERROR: one\n") == "one"
    assert last_message("Traceback\n  File x\nImportError: no libsynthetic\n") == "ImportError: no libsynthetic"
    assert last_message("") == "no output"

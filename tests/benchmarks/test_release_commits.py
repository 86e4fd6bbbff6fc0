"""Taking single changes of a newer release over."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.release_commits import Change, take_over

OLDER = [f"line {number}" for number in range(1, 31)]
PATH = "torch/_inductor/a.py"


@pytest.fixture
def folders(tmp_path):
    newer = OLDER.copy()
    newer[4] = "line 5, wanted"
    newer[14:14] = ["an inserted line of another change"]
    newer[25:25] = ["wanted, too"]
    for name, lines in (("older", OLDER), ("newer", newer)):
        path = tmp_path / name / PATH
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines) + "\n")
    # As in use: git takes the paths of a patch from the top of a repository.
    subprocess.run(["git", "init", "-q", str(tmp_path / "older")], check=True)
    return tmp_path / "older", tmp_path / "newer"


def test_only_the_places_that_match_are_taken_over(folders):
    older, newer = folders
    take_over(older, newer, Change("", "wanted", ("a.py",)))
    expected = OLDER.copy()
    expected[4] = "line 5, wanted"
    expected[24:24] = ["wanted, too"]
    assert (older / PATH).read_text().splitlines() == expected


@pytest.mark.parametrize(
    ("pattern", "file", "says"), [("nowhere", "a.py", "has no place"), ("wanted", "b.py", "unpack")]
)
def test_what_does_not_fit_ends_the_program(folders, pattern, file, says):
    with pytest.raises(SystemExit, match=says):
        take_over(*folders, Change("", pattern, (file,)))

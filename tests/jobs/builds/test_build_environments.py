"""Environments of builds, what runs in them, and which commits a pull request has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from jobs.builds.build_environments import Listing
from jobs.builds.build_options import BuildError, BuildOptions, parse_build
from tests.command_line import ROOT, call, is_one_line


@pytest.mark.parametrize("text", ["", "latest", "2.9.1; rm -rf", "../2.9.1", "-r file", ">=2.9"])
def test_what_is_no_version_never_reaches_an_installer(text):
    with pytest.raises(BuildError, match="no version of torch"):
        parse_build(text)


def test_a_build_has_a_date_and_an_index_of_torch_gives_torch_alone():
    listing = Listing(("2.9.1",), {"2.9.1": "2025-11-12T15:20:15Z"})
    assert listing.date_of(Version("2.9.1")) == listing.date_of(Version("2.9.1+cpu")) == "2025-11-12T15:20:15Z"
    assert listing.date_of(Version("2.10.0")) is None
    assert Listing().date_of(Version("2.14.0.dev20261101+cpu")) == "2026-11-01"
    options = BuildOptions(index_url="https://index.invalid/cpu", find_links=("wheels",))
    assert options.words() == ["--index-url", "https://index.invalid/cpu", "--find-links", "wheels"]
    assert options.words(of_torch=False) == ["--find-links", "wheels"], "an index of torch is asked for torch alone"


def test_an_installed_program_is_copied_away_from_the_torch_beside_it(tmp_path):
    packages = tmp_path / "site-packages"
    for room in ("collector", "jobs", "db", "analysis"):
        shutil.copytree(ROOT / room, packages / room, ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "torch").mkdir()
    code = (
        "import os, sys; from jobs.pool.child import code_path; first = code_path()['PYTHONPATH'].split(os.pathsep)[0];"
        "from importlib.metadata import distribution; sys.path.insert(0, first);"
        "print(first); print(sorted(os.listdir(first))); print(distribution('inductor-watch').locate_file(''))"
    )
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True)
    first, listed, found = done.stdout.splitlines()
    assert "site-packages" not in first
    assert found.rstrip("/") == first
    assert "'collector', 'db'" in listed
    assert "torch" not in listed
    assert not Path(first).exists()  # it goes with the process


ENDS = ("--model", "m", "--config", "triton", "--good", "2.9.0", "--bad", "2.10.0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["backfill", "--torch", "newest"], "'newest' is no version of torch"),
        (["bisect", *ENDS[:-1], "2.8.0", "--torch", "2.9.0"], "--good 2.9.0 is not older than --bad 2.8.0"),
        (["bisect", *ENDS, "--replicates", "9", "--most-runs", "3"], "--most-runs is less than --replicates"),
        (["bisect", *ENDS, "--metric", "code"], "--metric code goes with --git"),
    ],
)
def test_wrong_words_are_one_line_and_nothing_is_written(words, said, tmp_path):
    is_one_line(call(*words, folder=tmp_path), 2, said)
    assert list(tmp_path.iterdir()) == []


def test_a_child_imports_only_what_its_environment_has():
    code = (
        "import sys\n"
        "from importlib.metadata import packages_distributions\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if path is None and name in others: raise ModuleNotFoundError(name)\n"
        "allowed = {'click', 'rich', 'numpy', 'torch', 'markdown-it-py', 'Pygments', 'mdurl', 'inductor-watch'}\n"
        "others = {name for name, of in packages_distributions().items() if not allowed & set(of)}\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "import jobs.pool.child, jobs.pool.session, jobs.pool.testbeds, jobs.pool.resuming, jobs.plan.planning\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr

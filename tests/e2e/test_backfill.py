"""`backfill` and `bisect` as people call them: real environments from local wheels, a real git repository, no network.

The torch in the wheels is a synthetic one that computes nothing: it answers with made-up latencies.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import stat
import subprocess
import sys

import pytest

from tests.command_line import ROOT, call, is_one_line, tell
from tests.jobs.builds.fake_builds import commit_of, make_extra, make_wheel
from tests.jobs.repositories import commit

SPEEDS = {"9.2.0": 1.0, "9.10.0": 1.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with wheels of synthetic torches: one does not import, one is a CUDA build, the last is slower."""
    place = tmp_path_factory.mktemp("builds")
    for version, speed in SPEEDS.items():
        make_wheel(place / "wheels", version, speed)
    make_wheel(place / "wheels", "9.3.0", imports=False)
    make_wheel(place / "wheels", "9.4.0", needs=("nvidia-synthetic",))
    for name in ("synthetic-zoo", "nvidia-synthetic"):
        make_extra(place / "wheels", name)
    return place


#: uv comes with the dev extra; whoever installs without it has pip.
WITHOUT_UV = (
    "import shutil; which = shutil.which; shutil.which = lambda name, *more: name != 'uv' and which(name, *more)"
)


def made(folder, *words, verb="backfill", prelude="pass"):
    common = ("--no-index", "--find-links", folder / "wheels", "--envs", folder / "envs", "--with", "synthetic-zoo")
    return call(verb, *common, "--device", "cpu", *words, folder=folder, prelude=prelude)


@pytest.fixture(scope="module")
def filled(folder):
    """The folder after a first backfill with uv, and what that printed."""
    assert shutil.which("uv"), "pip install -e .[dev]"
    torches = [word for version in ("9.10.0", "9.2.0", "9.3.0", "9.4.0", "9.9.9") for word in ("--torch", version)]
    return folder, made(folder, *torches, "--out", "runs", "--db", "store.db", "--replicates", "2")


def files_of(place):
    return {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}


def test_builds_are_measured_oldest_first_under_their_own_commits(filled):
    folder, done = filled
    assert done.returncode == 0, tell(done)
    (python,) = (folder / "envs").glob("torch-9.2.0-*/bin/python")
    code = "import synthetic_zoo, torch; print(torch.__version__)"
    assert subprocess.run([python, "-c", code], capture_output=True, text=True).stdout == "9.2.0\n"
    with sqlite3.connect(folder / "store.db") as conn:
        joined = 'FROM runs r JOIN commits c ON c.id = r."commit" ORDER BY r.started_at'
        runs = conn.execute(f"SELECT c.sha, r.branch, r.night {joined}").fetchall()
    assert [sha for sha, _, _ in runs] == [commit_of("9.2.0")] * 2 + [commit_of("9.10.0")] * 2
    assert {branch for _, branch, _ in runs} == {"releases"}
    assert len({night for _, _, night in runs}) == 2
    # A build that cannot be had is said in a line, and the others go on.
    lines = filled[1].stdout.splitlines()
    assert [line for line in lines if line.startswith("torch 9.10.0 ") and "4 pass" in line]
    (broken,) = [line for line in lines if line.startswith("torch 9.3.0")]
    assert "skipped: torch does not import: ImportError: no libsynthetic" in broken
    (cuda,) = [line for line in lines if line.startswith("torch 9.4.0")]
    assert "CUDA build only" in cuda
    assert "--cuda-builds" in cuda
    (unknown,) = [line for line in lines if line.startswith("torch 9.9.9")]
    assert "no version of torch==9.9.9" in unknown
    assert list((folder / "envs").glob("torch-9.9.9*/")) == []
    assert "no date is known of 9.2.0, 9.10.0" in lines[-1]


def test_without_uv_pip_makes_the_same_environments(folder):
    ask = ("--torch", "9.2.0", "--no-store", "--out", "with-pip", "--envs", "with-pip-envs")
    done = made(folder, *ask, prelude=WITHOUT_UV)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("torch 9.2.0 ")]
    assert "2 pass" in line, tell(done)


def test_the_same_again_measures_nothing_and_one_that_was_cut_off_goes_on(filled):
    folder, _ = filled
    before = files_of(folder / "runs") | files_of(folder / "envs")
    again = made(folder, "--torch", "9.2.0", "--out", "runs", "--db", "store.db", "--replicates", "2")
    assert "4 pass; at hand" in again.stdout, tell(again)
    assert files_of(folder / "runs") | files_of(folder / "envs") == before

    closed = sorted((folder / "runs" / "torch-9.2.0").glob("*-2/*.jsonl.gz"))[0]
    lines = gzip.decompress(closed.read_bytes()).splitlines(keepends=True)
    closed.with_suffix("").write_bytes(b"".join(lines[:-2]) + lines[-2][:20])  # as a kill leaves it
    closed.unlink()
    last = made(folder, "--torch", "9.2.0", "--out", "runs", "--no-store", "--replicates", "2", "--json")
    (found,) = json.loads(last.stdout)
    assert (found["statuses"], found["runs"], found["commit"]) == ({"pass": 4}, 2, commit_of("9.2.0"))
    changed = {path for path, stamp in files_of(folder / "runs").items() if before.get(path) != stamp}
    assert changed == {closed}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A clone of seven commits, of which the fifth makes it slower and the fourth cannot be prepared; its shas."""
    place, speeds = tmp_path_factory.mktemp("clone"), [*["1.0"] * 3, "broken", *["1.2"] * 3]
    return place, [commit(place, {"speed": speed, "number": str(at)}, "main") for at, speed in enumerate(speeds)]


def test_a_bisection_over_commits_skips_one_that_does_not_build(repository, tmp_path):
    place, shas = repository
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.jobs.builds.fake_worker import answer\n"
        f"answer(float(open({str(tmp_path / 'speed')!r}).read()), '9.0.0', 'f' * 40)\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    prepare = f'git cat-file -p "$INDUCTOR_WATCH_COMMIT:speed" > "{tmp_path}/speed" && ! grep broken "{tmp_path}/speed"'
    ask = ("--model", "synthetic-a", "--config", "default", "--git", place, "--python", python)
    done = call("bisect", *ask, "--run", prepare, "--good", "HEAD~6", "--bad", "main", folder=tmp_path)
    assert done.returncode == 0, tell(done)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"last good  {shas[2]}")
    assert lines[1].startswith(f"first bad  {shas[4]}")
    assert lines[1].endswith(f"or one of {shas[3]}")
    assert f"{shas[3]}: skipped: the --run command ended with exit code 1 (broken)" in done.stderr
    events = [json.loads(line) for line in (tmp_path / "bisect" / "bisect.jsonl").read_text().splitlines()]
    assert {event["commit"] for event in events if event["event"] == "run"} <= set(shas) - {shas[3]}

    wrong = call("bisect", *ask, "--run", prepare, "--good", "main", "--bad", "HEAD~6", folder=tmp_path)
    is_one_line(wrong, 2, "did not land before")
    unknown = call("bisect", *ask, "--run", prepare, "--good", "nowhere", "--bad", "main", folder=tmp_path)
    is_one_line(unknown, 2, "no commit 'nowhere'")

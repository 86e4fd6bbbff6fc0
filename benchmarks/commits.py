"""How long a repository's history takes to import, on a synthetic one.

python benchmarks/commits.py [--commits 600000] [--db postgresql://user@host/name] [--keep FOLDER]

Synthetic: one line of commits whose titles say so, one in fifty reverted a little later, each of these landed once more.
Messages have the length of PyTorch's. Prints seconds of wall and CPU time and the most memory that this process held.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from db.commits.ranges import commit_range, find_commits, landings, list_commits
from db.engine import open_store
from jobs.git.commit_import import read_history
from jobs.git.log import Repository

T = TypeVar("T")
_SEED, _START = 1, 1_500_000_000
_REPO = "synthetic/benchmark"
_BODY = "Synthetic text of a commit that nobody wrote, as long as those of a large project. " * 8


def main() -> None:
    """Prints a line a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=600_000)
    parser.add_argument(
        "--db", action="append", default=[], metavar="URL", help="another database than a new SQLite file"
    )
    parser.add_argument("--keep", type=Path, help="folder for the repository, used again where it is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        clone = options.keep or Path(scratch) / "clone"
        if not clone.exists():
            timed("git fast-import", lambda: make_repository(clone, options.commits))
        timed("git log alone", lambda: git_log(clone))
        for location in (str(Path(scratch) / "commits.db"), *options.db):
            measure(clone, location)


def measure(clone: Path, location: str) -> None:
    """Imports twice, then asks; a line each."""
    engine = open_store(location, write=True)
    name = engine.dialect.name
    repository = Repository(clone)
    for what in ("import", "import again"):
        report = timed(f"{name}: {what}", lambda: read_history(repository, _REPO).store(engine))
        print(f"    {report.new} new, {report.unchanged} unchanged, {report.reverts} reverts, {report.relands} relands")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"    {used:.0f} MiB at most in this process, {report.unknown + report.ambiguous} shas kept out")
    few = list_commits(engine, limit=301)
    timed(f"{name}: range of 300", lambda: commit_range(engine, few[-1].sha, few[0].sha))
    timed(f"{name}: a pull request", lambda: landings(engine, 50))
    timed(f"{name}: search by words", lambda: find_commits(engine, "synthetic change 77"))
    timed(f"{name}: search, none", lambda: find_commits(engine, "no such words"))
    engine.dispose()


def timed(name: str, work: Callable[[], T]) -> T:
    """The answer, after printing how long it took: seconds of wall time, and of CPU in this process and git's."""
    begun, before = time.perf_counter(), os.times()
    found = work()
    took, after = time.perf_counter() - begun, os.times()
    print(f"{name:<28} {took:8.3f} s, CPU {sum(after[:4]) - sum(before[:4]):7.2f} s", flush=True)
    return found


def git_log(clone: Path) -> None:
    """Reads the log and throws it away."""
    command = ["git", "-C", str(clone), "log", "--format=%H%x00%at%x00%ct%x00%s%x00%B", "main"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def make_repository(clone: Path, count: int) -> None:
    """A bare repository with so many synthetic commits on main."""
    make = ["git", "init", "-q", "--bare", "-b", "main", str(clone)]
    subprocess.run(make, check=True)
    importer = ["git", "-C", str(clone), "fast-import", "--quiet", "--force"]
    # Reverts name shas, which git knows after writing: it tells them on request.
    with subprocess.Popen(importer, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as git:
        if git.stdin is None or git.stdout is None:
            raise AssertionError("pipes were asked for")
        for number, (message, names) in enumerate(_messages(count), start=1):
            text = message.encode()
            if names:
                git.stdin.write(b"get-mark :%d\n" % names)
                git.stdin.flush()
                text += b"This reverts commit %s.\n" % git.stdout.readline().strip()
            when = _START + 60 * number
            who = b"Synthetic <synthetic@example.org> %d +0000" % when
            git.stdin.write(b"commit refs/heads/main\nmark :%d\nauthor %s\ncommitter %s\n" % (number, who, who))
            git.stdin.write(b"data %d\n%s\n" % (len(text), text))
        git.stdin.close()


def _messages(count: int) -> Iterator[tuple[str, int]]:
    """Messages, and the number of the commit that each takes back (0: none)."""
    chance = random.Random(_SEED)
    due: dict[int, tuple[str, int]] = {}
    for number in range(1, count + 1):
        if number in due:
            title, target = due.pop(number)
            yield f'Revert "{title}"\n\n' if target else f"{title}\n\n{_BODY}", target
            continue
        title = f"[synthetic] change {number} of nothing in particular (#{number})"
        if number % 50 == 0:
            later = number + chance.randint(3, 40)
            due[later] = (title, number)
            due.setdefault(later + 4, (title, 0))
        yield f"{title}\n\n{_BODY[: chance.randint(50, len(_BODY))]}\n", 0


if __name__ == "__main__":
    main()

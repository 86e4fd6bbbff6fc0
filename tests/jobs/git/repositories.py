"""Real git repositories for tests, written with `git fast-import`: any message, any parent, any clock."""

from __future__ import annotations

import subprocess
from pathlib import Path


class RepositoryWriter:
    """Writes commits into a new bare repository; they are there when the `with` ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        run_git(path.parent, "init", "-q", "--bare", "-b", "main", str(path))
        command = ["git", "-C", str(path), "fast-import", "--quiet", "--force", "--date-format=raw-permissive"]
        self._git = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._marks: dict[str, int] = {}

    def commit(
        self,
        message: str | bytes,
        *,
        branch: str = "main",
        at: int = 1_700_000_000,
        zone: str = "+0000",
        author_at: int | None = None,
        parents: tuple[str, ...] = (),
        touches: str = "",
    ) -> str:
        """Adds a commit to a branch (or to `parents`), and returns its sha."""
        mark = len(self._marks) + 1
        text = message if isinstance(message, bytes) else message.encode()
        who = "Synthetic <synthetic@example.org>"
        moments = f"author {who} {at if author_at is None else author_at} {zone}\ncommitter {who} {at} {zone}\n"
        head = f"commit refs/heads/{branch}\nmark :{mark}\n{moments}data {len(text)}\n"
        links = [f"{'merge' if index else 'from'} :{self._marks[sha]}\n" for index, sha in enumerate(parents)]
        file = f"M 100644 inline {touches}\ndata {len(str(mark))}\n{mark}\n" if touches else ""
        self._git.stdin.write(head.encode() + text + f"\n{''.join(links)}{file}\nget-mark :{mark}\n".encode())
        self._git.stdin.flush()
        sha = self._git.stdout.readline().decode().strip()
        self._marks[sha] = mark
        return sha

    def __enter__(self) -> RepositoryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._git.communicate()


def run_git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder, for somebody who is nobody: git's own configuration names no user here."""
    who = ("-c", "user.name=Synthetic", "-c", "user.email=synthetic@example.org")
    found = subprocess.run(["git", *who, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return found.stdout.strip()

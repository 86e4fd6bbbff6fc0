"""Real git repositories for tests, written with `git fast-import`: any message, any parent, any clock."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType


class RepositoryWriter:
    """Writes commits into a new bare repository; they are there when the `with` ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        run_git(path.parent, "init", "-q", "--bare", "-b", "main", str(path))
        command = ["git", "-C", str(path), "fast-import", "--quiet", "--force", "--date-format=raw-permissive"]
        self._git = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._mark = 0
        self._marks: dict[str, int] = {}

    def commit(
        self,
        message: str | bytes,
        *,
        branch: str = "main",
        at: int = 1_700_000_000,
        zone: str = "+0000",
        author_at: int | None = None,
        parents: tuple[str, ...] | None = None,
        touches: str = "",
    ) -> str:
        """Adds a commit to a branch (or to `parents`), and returns its sha."""
        self._mark += 1
        text = message if isinstance(message, bytes) else message.encode()
        who = f"Synthetic <synthetic@example.org> {at if author_at is None else author_at} {zone}"
        self._say(f"commit refs/heads/{branch}\nmark :{self._mark}\nauthor {who}\n".encode())
        self._say(
            f"committer Synthetic <synthetic@example.org> {at} {zone}\ndata {len(text)}\n".encode() + text + b"\n"
        )
        for index, parent in enumerate(parents or ()):
            self._say(f"{'merge' if index else 'from'} :{self._marks[parent]}\n".encode())
        if touches:
            content = f"{self._mark}"
            self._say(f"M 100644 inline {touches}\ndata {len(content)}\n{content}\n".encode())
        self._say(f"\nget-mark :{self._mark}\n".encode())
        self._git.stdin.flush()
        sha = self._git.stdout.readline().decode().strip()
        self._marks[sha] = self._mark
        return sha

    def _say(self, words: bytes) -> None:
        self._git.stdin.write(words)

    def __enter__(self) -> RepositoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._git.stdin.close()
        self._git.wait()
        self._git.stdout.close()


def run_git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder, for somebody who is nobody: git's own configuration names no user here."""
    who = ("-c", "user.name=Synthetic", "-c", "user.email=synthetic@example.org")
    found = subprocess.run(["git", *who, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return found.stdout.strip()

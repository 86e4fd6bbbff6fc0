"""Real git repositories for tests, some of them written with `git fast-import`: any message, any parent, any clock."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
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
        author_at: int | None = None,
        parents: tuple[str, ...] = (),
        touches: str = "",
    ) -> str:
        """Adds a commit to a branch (or to `parents`), and returns its sha."""
        mark = len(self._marks) + 1
        text = message if isinstance(message, bytes) else message.encode()
        who = "Synthetic <synthetic@example.org>"
        moments = f"author {who} {at if author_at is None else author_at} +0000\ncommitter {who} {at} +0000\n"
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


def commit(folder: Path, files: dict[str, str | None], branch: str, title: str | None = None) -> str:
    """Commits files (None: they go) on a branch that begins here, in a repository that is made if there is none."""
    if not (folder / ".git").exists():
        folder.mkdir(exist_ok=True)
        run_git(folder, "init", "-q", "-b", "main", ".")
    run_git(folder, "checkout", "-q", "-B", branch)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if content is None else path.write_text(content)
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "-q", "--allow-empty", "-m", title or f"On {branch}")
    return run_git(folder, "rev-parse", "HEAD")


def installed(path: str) -> Path:
    """A file or folder of the installed torch, which is not imported."""
    return Path(find_spec("torch").origin).parents[1] / path

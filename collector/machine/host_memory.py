"""How much of the host's memory a process may still take."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/")
#: The limit of the control group that a container is in, and what is used of it, of cgroups 2 and 1.
_LIMITS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)


def available_bytes(root: Path = _ROOT) -> int | None:
    """Return the memory that is free or can be freed, within the limit of a container; None where nothing tells it."""
    left = [_kilobytes(root / "proc/meminfo", "MemAvailable:")]
    for limit, used, stat in _LIMITS:
        most, now = _number(root / limit), _number(root / used)
        if most is not None and now is not None:
            # Files that were read and are not in use are dropped before anything fails.
            left.append(max(0, most - now + (_field(root / stat, "inactive_file") or 0)))
    return min((size for size in left if size is not None), default=None)


def _kilobytes(file: Path, name: str) -> int | None:
    found = _field(file, name)
    return None if found is None else found << 10


def _field(file: Path, name: str) -> int | None:
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(words[1]) for words in lines if len(words) > 1 and words[0] == name and words[1].isdigit()), None)


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None  # "max" where there is no limit


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""

"""The compiled programs of a check's sides, kept by content: a later check of the same side compiles none of them again.

    CACHE/programs/KEY/CELL/...      the compiler's caches of a cell (`Settings.compiled`)
    CACHE/programs/KEY/CELL.passed   the code whose outputs passed

KEY is a hash of all that a program depends on beside its cell. The folders of the newest sides are kept. One that a check uses is
locked, and another check that ends meanwhile leaves it alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from collector.output_file import write_output
from collector.own_models import USER, described
from collector.settings import Settings
from collector.usage_errors import ConfigError
from collector.vocabulary import short_hash
from jobs.census.census_pool import collector_digest
from jobs.checking.check_sides import CheckedSide

#: Sides whose programs are kept: both sides of two checks.
_SIDES = 4


def folder_for(side: CheckedSide, settings: Settings, cache: Path) -> Path:
    """Return the folder for the programs of a side in a cache.

    A program has the choices of its autotuning, so another folder of shared choices makes other programs. Another version of
    this program may build other models, and check outputs by other rules.
    """
    (testbed, *_) = side.testbeds
    models = [described(USER, model.name, settings.own_models) for model in settings.own_models]
    own = [settings.testbed(), settings.shared_tuning, models]
    parts = [side.word, testbed.environment, testbed.execution.overlay, own, collector_digest()]
    return cache.expanduser() / "programs" / short_hash(parts, 20)


class KeptPrograms:
    """The programs of one side during a check: a context manager that keeps their `folder`, and at its end removes older ones.

    Entering it raises `ConfigError` if another user made the folder or may write to it, since what is found there is run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = self.folder.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise ConfigError(
                f"{self.folder}: other users may write compiled programs there: remove it, or take another --cache"
            )
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self.folder.mkdir(mode=0o700, exist_ok=True)  # another check may have removed it as an old one until now
        os.utime(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock:
            self._lock.close()
        with suppress(FileNotFoundError):  # another check removes them, too
            beside = [folder for folder in self.folder.parent.iterdir() if folder.is_dir()]
            for old in sorted(beside, key=lambda folder: folder.stat().st_mtime, reverse=True)[_SIDES:]:
                with suppress(OSError), (old / "lock").open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(old, ignore_errors=True)

    def passed(self, cell_id: str) -> str:
        """Return the code of a cell whose outputs passed here; empty if none did."""
        with suppress(OSError):
            return self._file(cell_id).read_text()
        return ""

    def note_passed(self, cell_id: str, code_id: str) -> None:
        """Keep the code of a cell whose outputs passed."""
        write_output(self._file(cell_id), code_id)

    def _file(self, cell_id: str) -> Path:
        return self.folder / f"{cell_id}.passed"

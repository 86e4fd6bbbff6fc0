"""`python -m tests.chaos`: every fault, and one table of what it cost. Exit code 1 if anything was lost or doubled."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.faults import ANY_DISK, FAULTS
from tests.chaos.processes import warm_up
from tests.chaos.server import server
from tests.chaos.setting import SABOTAGES, Setting
from tests.chaos.tally import Tally, table

#: A disk in memory, where there is one.
_MEMORY = "/dev/shm"  # noqa: S108


def main(words: Sequence[str] | None = None) -> int:
    """Runs the faults that were asked for; prints the table or, with `--json`, every counter."""
    asked = _parser().parse_args(words)
    names = [name for name in FAULTS if not asked.only or name in asked.only]
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    began = time.monotonic()
    warm_up()
    wants_server = any(name.endswith("-postgres") for name in names)
    with server(wants_server) as (postgres, why_not), _folder() as folder, _folder(_MEMORY) as quick:
        tallies = []
        for name in names:
            place = Path(quick if name in ANY_DISK else folder)
            setting = Setting(place / name, random.Random(f"{seed}/{name}"), asked.short, asked.sabotage or "")
            setting.postgres, setting.no_postgres = postgres, why_not
            tallies.append(measure(name, setting))
            if not asked.json:
                print(f"{name}: {tallies[-1].verdict}", file=sys.stderr, flush=True)  # noqa: T201
    took = time.monotonic() - began
    if asked.json:
        print(json.dumps({"seed": seed, "seconds": round(took, 1), "faults": [tally.to_json() for tally in tallies]}))  # noqa: T201
    else:
        print(f"{table(tallies)}\nseed {seed}, {took:.0f} s; synthetic data throughout")  # noqa: T201
    return 0 if all(tally.is_sound for tally in tallies) else 1


def measure(name: str, setting: Setting) -> Tally:
    """One fault in its own folder, with the seconds that it took."""
    setting.folder.mkdir(parents=True)
    began = time.monotonic()
    tally = FAULTS[name](setting)
    tally.seconds = time.monotonic() - began
    return tally


def _folder(where: str | None = None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="chaos-", dir=where if where and os.access(where, os.W_OK) else None)


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition(":")[2])
    found.add_argument("--short", action="store_true", help="a few tries of each fault instead of all")
    found.add_argument("--only", action="append", choices=sorted(FAULTS), help="this fault; repeatable")
    found.add_argument("--seed", type=int, help="repeat a run [a new one each time]")
    found.add_argument("--json", action="store_true", help="every counter as JSON")
    found.add_argument("--sabotage", choices=SABOTAGES, help="break something on purpose, to see it counted")
    return found


if __name__ == "__main__":
    sys.exit(main())

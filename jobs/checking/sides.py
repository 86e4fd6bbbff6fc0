"""The two sides of a check: an overlay each, the names of its runs, and the testbeds that measure it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from collector.process.launcher import Launcher
from jobs.builds.options import SourceOptions
from jobs.pool.requested_options import RequestedOptions, RunNames
from jobs.pool.runner import new_run_id
from jobs.pool.testbeds import Testbed, find_testbeds

#: The trigger of the runs.
TRIGGER = "check"


@dataclass(frozen=True, slots=True)
class CheckedSide:
    """`base` or `new`, and the ref, empty for the installed torch.

    All of its runs are one night, which names it, so that both may be of one commit.
    """

    word: str
    ref: str
    names: RunNames
    testbeds: Sequence[Testbed]

    @property
    def night(self) -> str:
        """What `compare` and `report` call this side."""
        return self.names.night


def make_overlays(
    refs: tuple[str, str], repo: Path, source: SourceOptions, label: str, requested: RequestedOptions
) -> list[tuple[RunNames, RequestedOptions]]:
    """What the runs of both refs are called and asked to do; an empty ref is the installed torch.

    Raises what `make_overlay` raises.
    """
    began = new_run_id()
    return [
        replace(source, source=f"{repo}@{ref}" if ref else None).applied(
            RunNames(trigger=TRIGGER, label=label, night=f"{began}-{word}"), requested
        )
        for word, ref in zip(("base", "new"), refs, strict=True)
    ]


def find_sides(
    refs: tuple[str, str], overlays: Sequence[tuple[RunNames, RequestedOptions]], device: str | None
) -> tuple[CheckedSide, CheckedSide]:
    """Both sides with their testbeds; this process plans with the base's torch. Raises what `find_testbeds` raises."""
    base, new = (
        CheckedSide(word, ref, names, find_testbeds(device, requested.execution, plans=word == "base"))
        for word, ref, (names, requested) in zip(("base", "new"), refs, overlays, strict=True)
    )
    return base, new


@contextmanager
def serving(*sides: CheckedSide) -> Iterator[list[CheckedSide]]:
    """Give each testbed of the sides a fork server that their passes share, and end the servers afterwards."""
    with ExitStack() as stack:
        served = []
        for side in sides:
            testbeds = []
            for testbed in map(Testbed.serving, side.testbeds):
                testbeds.append(testbed)
                if testbed.launcher:
                    stack.callback(_end, testbed.launcher)
                    testbed.launcher.is_kept = True
            served.append(replace(side, testbeds=testbeds))
        yield served


def _end(launcher: Launcher) -> None:
    launcher.is_kept = False
    launcher.close()

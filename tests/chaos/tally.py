"""What one fault did and what it cost: counted, never asserted, so that a run goes on and tells everything it saw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

#: Findings kept in words; the counters go on beyond.
_KEPT = 20


@dataclass(slots=True)
class Tally:
    """Counts of one fault.

    `hits` says where the fault struck or how it was answered. `lost`: acknowledged or whole things that are not there.
    `doubled`: things that are there twice, or that nobody wrote. `wrong`: other broken promises (answers that differ from
    an undisturbed store, more than one line for an error, a wrong exit code). `tracebacks`: errors nobody foresaw.
    """

    fault: str
    tries: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    tracebacks: int = 0
    seconds: float = 0.0
    skipped: str = ""
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost, doubled, wrong or unforeseen. A fault that was not tried is no failure."""
        return not (self.lost or self.doubled or self.wrong or self.tracebacks) and (self.tries > 0 or self.is_skipped)

    @property
    def is_skipped(self) -> bool:
        """Whether this machine could not do it."""
        return bool(self.skipped)

    @property
    def verdict(self) -> str:
        """`ok`, `BROKEN`, or why it was not tried."""
        if not self.is_sound:
            return "BROKEN"
        return f"skipped: {self.skipped}" if self.skipped else "ok"

    def lose(self, count: int, what: str) -> None:
        """Notes that so many things are not there."""
        self.lost += count
        self._find(count, f"lost {count}: {what}")

    def double(self, count: int, what: str) -> None:
        """Notes that so many things are there and should not be."""
        self.doubled += count
        self._find(count, f"doubled {count}: {what}")

    def err(self, what: str) -> None:
        """Notes another broken promise."""
        self.wrong += 1
        self._find(1, f"wrong: {what}")

    def trace(self, what: str) -> None:
        """Notes an error that nobody foresaw."""
        self.tracebacks += 1
        self._find(1, f"traceback: {what}")

    def _find(self, count: int, text: str) -> None:
        if count and len(self.findings) < _KEPT:
            self.findings.append(" ".join(text.split())[:300])

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every counter."""
        names = ("fault", "tries", "lost", "doubled", "wrong", "tracebacks", "skipped", "findings", "notes")
        found = {name: getattr(self, name) for name in names}
        return {**found, "hits": dict(self.hits), "seconds": round(self.seconds, 1), "verdict": self.verdict}


def table(tallies: list[Tally]) -> str:
    """The tallies as lines of text with aligned columns, what was found and noted below."""
    head = ("fault", "tries", "lost", "doubled", "wrong", "tracebacks", "s", "verdict", "hits")
    rows = [head, *(_row(tally) for tally in tallies)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
    numeric = range(1, 7)
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if i in numeric else text.ljust(width)
            for i, (text, width) in enumerate(zip(row[:-1], widths, strict=True))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    for tally in tallies:
        lines += [f"{tally.fault}: {text}" for text in (*tally.notes, *tally.findings)]
    return "\n".join(lines)


def _row(tally: Tally) -> tuple[str, ...]:
    counts = (tally.tries, tally.lost, tally.doubled, tally.wrong, tally.tracebacks)
    hits = ", ".join(f"{count} {name}" for name, count in sorted(tally.hits.items()))
    return tally.fault, *map(str, counts), f"{tally.seconds:.1f}", tally.verdict, hits

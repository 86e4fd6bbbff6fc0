"""How far each kernel is from what its bytes and operations take at this device's best rates, as a table and in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from analysis.compare.side_differences import source_lines, stem
from analysis.elements.code_tables import shown_source
from analysis.elements.markup import mono, table
from analysis.elements.wording import ABSENT, milliseconds

_MOST = 14


@dataclass(frozen=True, slots=True)
class RoofTimes:
    """Milliseconds of a call in the launches of a kernel, and what they ideally take."""

    ms: float
    ideal_ms: float

    @property
    def share(self) -> str:
        """`56 %`; what a cache serves can be faster than its ideal, and is at the roof."""
        return f"{min(1.0, self.ideal_ms / self.ms):.0%}" if self.ms else ABSENT

    @property
    def lost_us(self) -> float:
        """Return the microseconds by which it is slower."""
        return 1e3 * max(0.0, self.ms - self.ideal_ms)


ROOF_CAPTION = (
    "The roof of a kernel is the time that its bytes take at the rate of a plain copy, or its operations at that of a plain "
    "matrix product, both measured in the same process. A library's kernels count together where the program calls several "
    "of its functions in a row. A small kernel is far from the roof however good it is: a launch takes microseconds."
)


def roof_times(details: Mapping[str, Any]) -> dict[str, RoofTimes]:
    """Return the times by kernel without its number, which shifts where another one comes or goes."""
    roof = details.get("roof")
    kernels = roof.get("kernels") if isinstance(roof, Mapping) else None
    found: dict[str, RoofTimes] = {}
    for row in kernels if isinstance(kernels, list) else []:
        with suppress(TypeError, ValueError):  # what another program wrote
            name, _, ms, ideal_ms = row
            before = found.get(stem(str(name)), RoofTimes(0.0, 0.0))
            found[stem(str(name))] = RoofTimes(before.ms + float(ms), before.ideal_ms + float(ideal_ms))
    return found


def roof_table(
    roles: Sequence[str], sides: Sequence[Mapping[str, RoofTimes]], details: Sequence[Mapping[str, Any]], of: str = ""
) -> Markup:
    """Return the kernels by the time that they lose, the largest of new first."""
    lost: dict[str, float] = {}
    for side in sides:  # the last one, new, counts where both have it
        lost |= {name: times.lost_us for name, times in side.items()}
    names = sorted(lost, key=lambda name: -lost[name])[:_MOST]
    rows = []
    for name in names:
        cells: list[str] = [mono(name if len(name) <= 110 else f"{name[:107]}...", name)]
        for side in sides:
            times = side.get(name)
            cells += [milliseconds(times.ms), times.share, f"{times.lost_us:,.0f}"] if times else [ABSENT] * 3
        lines = next(filter(None, (source_lines(one, _parts(name)) for one in reversed(details))), ())
        rows.append([*cells, shown_source(lines)])
    head = ["kernel", *(f"{role} {unit}" for role in roles for unit in ("ms", "of the roof", "lost, µs")), "from"]
    return table("Kernels by time lost", head, rows, note="per call", numbers=range(1, len(head) - 1), of=of)


def _parts(name: str) -> list[str]:
    """Return the calls of a library that `12 x mm [64, 32] [32, 16] + addmm [8]` names, or the kernel."""
    return [re.sub(r"^\d+ x ", "", part) for part in name.split(" + ")]


def rate_words(details: Mapping[str, Any]) -> str:
    """Say what a copy and products reach: `A copy reaches 2,900 GB/s here, a product 640 TFLOP/s in bfloat16.`"""
    roof = details.get("roof")
    with suppress(TypeError, ValueError, KeyError, AttributeError):
        if isinstance(roof, Mapping):
            products = [
                f"a product {float(rate):,.0f} TFLOP/s in {name}" for name, rate in roof["product_tflop_s"].items()
            ]
            return ", ".join([f"A copy reaches {float(roof['copy_gb_s']):,.0f} GB/s here", *products]) + "."
    return ""

"""Whether a leak appeared, grew or went: an absolute rule, since what leaks nothing has no logarithm and no noise of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.compare.paired_values import PairedValues
from analysis.compare.repeated import Mask, Numbers
from analysis.stats.verdicts import Verdict

#: The metric: bytes that stay allocated with every compiled call.
LEAK = "leak_bytes_per_call"
#: Bytes a call: what CUDA's caching allocator of torch rounds every request up to (`kMinBlockSize`), so the least that can leak.
BLOCK = 512.0
#: Of what leaked already: a leak that grew by less is the same leak. As for memory.
PART = 0.02


def judge_leaks(known: PairedValues, compared: Mask) -> dict[str, Any]:
    """The columns `<LEAK>_verdict`, `_change`, `_low`, `_high`, `_explained`, `_q` and `_more_runs` of the cells compared.

    A side leaks what all its runs do: `regressed` where the least of new's runs is above the greatest of base's by a block and
    2 % at least, `improved` the other way round, `unchanged` where all runs of both sides lie within that. Else the runs
    of a side disagree (a cache that was filled, a buffer that was made once): `inconclusive` until one more has been made.
    `change` is relative; NaN where base leaked nothing.
    """
    (base_least, base_most), (new_least, new_most) = known.extremes(LEAK)
    found = compared & np.isfinite(base_least) & np.isfinite(new_least)
    with np.errstate(invalid="ignore", divide="ignore"):
        grew = new_least - base_most >= _matters(base_most)
        shrank = base_least - new_most >= _matters(new_most)
        most, least = np.maximum(base_most, new_most), np.minimum(base_least, new_least)
        same = most - least < _matters(least)
        change = (new_least + new_most) / (base_least + base_most) - 1
    words = np.select([grew, shrank, same], list(_WORDS), Verdict.INCONCLUSIVE.value)
    nothing = np.full(len(found), np.nan)
    return {
        f"{LEAK}_verdict": [str(word) if here else None for word, here in zip(words, found, strict=True)],
        f"{LEAK}_change": np.where(found & (base_most > 0), change, nothing),
        **{f"{LEAK}_{name}": nothing for name in ("low", "high", "explained", "q")},
        f"{LEAK}_more_runs": np.where(found & (words == Verdict.INCONCLUSIVE.value), 1.0, nothing),
    }


_WORDS = (Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.UNCHANGED.value)


def _matters(leaked: Numbers) -> Numbers:
    return np.maximum(BLOCK, PART * leaked)

"""Which cells run a kernel: those whose compiled program has one of such a name, with its share of their device time.

python scripts/kernels_like.py PATTERN CONFIG BUNDLE...      e.g. gemm_f32f32 triton data/h200/*.gz

PATTERN is a regular expression; only cells of that config are looked at, the newest measurement of each. A bundle keeps the
24 kernels that take longest.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.bundle import read_bundle
from collector.vocabulary import Measurement, Status


def main() -> None:
    """Prints a line a cell, the largest share first."""
    if len(sys.argv) < 4:
        sys.exit("usage: python scripts/kernels_like.py PATTERN CONFIG BUNDLE...")
    pattern, config, *bundles = sys.argv[1:]
    items = [item for path in bundles for item in read_bundle(Path(path)).latest().values()]
    newest = {item.cell.cell_id: item for item in sorted(items, key=lambda item: item.started_at)}
    passing = [item for item in newest.values() if item.status is Status.PASS and item.cell.config.name == config]
    found = sorted(((share_of(item, pattern), item) for item in passing), key=lambda pair: -pair[0])
    print(f"{sum(share > 0 for share, _ in found)} of {len(found)} cells")
    for share, item in found:
        if share > 0:
            print(f"{share:5.0%}  device speedup {item.metrics.get('device_speedup', float('nan')):.2f}  {item.cell}")


def share_of(item: Measurement, pattern: str) -> float:
    """The part of the compiled device time that kernels of such names take; 0 where there are none or nothing was profiled."""
    kernels: Sequence[Sequence[object]] = item.details.get("compiled_kernels") or []
    matching = [float(str(ms)) for name, _, ms in kernels if re.search(pattern, str(name))]
    whole = item.metrics.get("compiled_kernel_ms", 0.0)
    return sum(matching) / whole if whole else 0.0


if __name__ == "__main__":
    main()

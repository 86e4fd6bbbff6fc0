"""The C++ instruction set that Inductor finds on this CPU, asked once a run instead of once a cell.

With empty caches every process builds and runs a probe for each instruction set before its first C++ kernel: about ten
seconds on two cores that say nothing about a model. Where the probes agree with what torch assumes without them, the
cells of a run are told so and skip them; where they do not, every cell probes for itself. The probes of AVX512 BF16 (torch
2.9), AVX512 VNNI (2.10) and AMX take no notice of that: they stay in a compile time, nine seconds of it up to torch 2.12
(docs/history.md).
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: Tells Inductor to believe the CPU's flags without building a probe.
SKIP_VARIABLE = "TORCHINDUCTOR_VEC_ISA_OK"


def vector_isa() -> dict[str, Any]:
    """`{"vec_isa": name, "probe_needed": bool}`; empty where this torch keeps its probes elsewhere."""
    try:
        from torch._inductor import config, cpu_vec_isa
    except ImportError:
        return {}
    probed = str(cpu_vec_isa.pick_vec_isa())
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    with config.patch({"cpp.vec_isa_ok": True}):
        assumed = str(cpu_vec_isa.pick_vec_isa())
    return {"vec_isa": probed, "probe_needed": probed != assumed}


def main() -> None:
    """Entry point of `python -m collector.toolchain`: prints the finding as one JSON line."""
    sys.stdout.write(json.dumps(vector_isa()) + "\n")


if __name__ == "__main__":
    main()

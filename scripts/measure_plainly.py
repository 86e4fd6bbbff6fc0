"""Measures cells without the pool: no fork server, no neighbours, no hold around Inductor's timing.

python scripts/measure_plainly.py SUITE/MODEL:PHASE:CONFIG...

Tells whether a failure that a night met belongs to torch and the model or to how this project runs cells. Each cell has a
process and empty caches of its own; all run at once. Prints a JSON line a cell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

_INNER = "--inner"
_LIMIT_S = 280


def main() -> None:
    """Starts every cell, then prints what each ended with."""
    if sys.argv[1:2] == [_INNER]:
        _measure(sys.argv[2])
        return
    started = [(name, _start(name)) for name in sys.argv[1:]]
    for name, process in started:
        try:
            output, _ = process.communicate(timeout=_LIMIT_S)
            line = output.decode(errors="replace").strip().splitlines()[-1:] or [""]
            found = (
                line[0] if line[0].startswith("{") else json.dumps({"exit": process.returncode, "said": line[0][-300:]})
            )
        except subprocess.TimeoutExpired:
            process.kill()
            found = json.dumps({"exit": None, "said": f"not done after {_LIMIT_S} s"})
        print(name, found, flush=True)


def _start(name: str) -> subprocess.Popen[bytes]:
    caches = tempfile.mkdtemp()
    environ = os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor", "TRITON_CACHE_DIR": f"{caches}/triton"}
    return subprocess.Popen(
        [sys.executable, __file__, _INNER, name], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _measure(name: str) -> None:
    import torch

    from collector.measure import measure
    from collector.settings import Settings
    from collector.spelling import parse_config
    from collector.vocabulary import Cell, Phase
    from collector.zoo.offline import forbid_hubs
    from collector.zoo.registry import find

    forbid_hubs()
    model, phase_name, config = name.split(":")
    spec, phase = find(*model.split("/", 1)), Phase(phase_name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = {"cpu": "float32"}.get(device, "amp" if phase is Phase.TRAINING else "bfloat16")
    cell = Cell(spec.suite, spec.name, phase, dtype, device, spec.batch_size(phase, device), parse_config(config))
    found = measure(cell, spec.build, Settings(rounds=5)).measurement
    told = {"status": found.status.value, "metrics": found.metrics}
    print(json.dumps(told | ({"failure": found.failure.to_json()} if found.failure else {})))


if __name__ == "__main__":
    main()

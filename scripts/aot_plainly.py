"""AOTInductor with nothing of this project: exports two layers, compiles, loads and calls them.

python scripts/aot_plainly.py [cuda|cpu]      whether a crash of `--backend aot_inductor` is torch's
"""

from __future__ import annotations

import faulthandler
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn


def main() -> None:
    """Says what was reached, a line a step."""
    faulthandler.enable()
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {text}", flush=True)

    say(f"torch {torch.__version__} on {device}")
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(device)
    given = torch.randn(8, 64, device=device)
    with torch.no_grad(), TemporaryDirectory() as folder:
        exported = torch.export.export(model, (given,))
        say("exported")
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(Path(folder, "model.pt2")))
        say("compiled")
        library = torch._inductor.aoti_load_package(package)
        say("loaded")
        say(f"differs by {(library(given) - model(given)).abs().max().item():.3g}")


if __name__ == "__main__":
    main()

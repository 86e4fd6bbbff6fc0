"""Whether a mixture of experts fails its check because of ties: `python -m benchmarks expert_ties [--model NAME]`.

Runs a decode step of the zoo four times, in eager and compiled, in bfloat16 and float32. Prints for each layer's cache the
RMSE of each token to eager float32, and for each router how far the last chosen expert's score is above the next one, and for
which tokens eager bfloat16 chooses other experts than eager float32 (1). On the GPU if there is one.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from collector.measure.program import Subject, seed_everything
from collector.vocabulary import Cell, Config, Phase
from collector.zoo.registry import find


@dataclass(slots=True)
class Step:
    """What a step left: the caches by name, (batch, ...), and the routers' scores by name, (batch, experts)."""

    caches: Mapping[str, Tensor]
    routers: dict[str, Tensor] = field(default_factory=dict)


def main() -> None:
    """Prints a few lines for each layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen3-30B-A3B-4layers.decode")
    parser.add_argument("--experts", type=int, help="experts a token [8 on a GPU, 2 on a CPU]")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    exact = decode(asked.model, "float32", device)
    steps = {
        "eager bfloat16": decode(asked.model, "bfloat16", device),
        "compiled bfloat16": decode(asked.model, "bfloat16", device, compiled=True),
        "compiled float32": decode(asked.model, "float32", device, compiled=True),
    }
    for name, cache in exact.caches.items():
        for title, step in steps.items():
            errors = (step.caches[name] - cache).flatten(1).square().mean(1).sqrt()
            print(f"{name:<16} {title:<18}", *(f"{error:.6f}" for error in errors))
    chosen = asked.experts or (8 if device == "cuda" else 2)
    for name, scores in exact.routers.items():
        best = scores.sort(descending=True).values
        both = (each.topk(chosen).indices.sort().values for each in (scores, steps["eager bfloat16"].routers[name]))
        other = torch.ne(*both).any(-1).int().tolist()
        gaps = (best[:, chosen - 1] - best[:, chosen]).tolist()
        print(f"{name}: gaps", *(f"{gap:.4f}" for gap in gaps), " other experts", *other)


def decode(name: str, dtype: str, device: str, *, compiled: bool = False) -> Step:
    """One step of the zoo's model `name`, in eager (then with the routers' scores) or compiled by Inductor."""
    seed_everything()
    spec = find("llm", name)
    batch = 8 if device == "cuda" else 2
    cell = Cell("llm", name, Phase.INFERENCE, dtype, device, batch, Config(template="triton"))
    built = spec.build(batch, Phase.INFERENCE, device)
    model = Subject(cell, built).model
    routers: dict[str, Tensor] = {}

    def keep(name: str, router: nn.Module, arguments: tuple[Tensor, ...], _: object) -> None:
        states = arguments[0].flatten(0, -2)
        routers[name] = functional.linear(states, router.weight).double().cpu()

    if not compiled:
        for path, module in model.named_modules():
            if path.endswith("mlp.gate"):
                module.register_forward_hook(partial(keep, path))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    arguments = [value.to(device) for value in built.args]
    with torch.no_grad():
        (torch.compile(model, dynamic=False) if compiled else model)(
            *arguments, **{name: value.to(device) for name, value in built.kwargs.items()}
        )
    torch.compiler.reset()
    after = {name: buffer for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name])}
    return Step({name: each.double().cpu() for name, each in after.items() if each.dim() == 4}, routers)


if __name__ == "__main__":
    main()

"""Why BERT base is slower compiled: which attention kernel runs under what mask, and what a mask of ones costs.

python scripts/explain_attention.py [MODEL]      on a GPU; docs/worked_example.md reads what it prints

Transformers leaves the mask out where nothing is masked. Where it does not notice, `scaled_dot_product_attention` is given a
mask that was expanded and not filled; the script shows what torch chooses for each kind, and times the model with its mask
left out, in eager and compiled.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from collector import profiling
from collector.program import Subject, seed_everything
from collector.spelling import parse_config
from collector.templates import resolve_config
from collector.vocabulary import Cell, Phase
from collector.zoo.registry import find

_CALLS = 5
#: BERT base at PyTorch's batch size: batch, heads, length, size of a head.
_SHAPE = (16, 12, 512, 64)


def main() -> None:
    """Prints the choices, then device times with the kernels that take most of them."""
    if not torch.cuda.is_available():
        sys.exit("explain_attention.py: needs a GPU")
    model = sys.argv[1] if len(sys.argv) > 1 else "BertForMaskedLM"
    print(f"torch {torch.__version__}, transformers {version('transformers')}, {torch.cuda.get_device_name()}")
    _print_choices()
    for form in ("eager", "compiled"):
        for name, left_out in (("as it is", None), ("mask always left out", True), ("mask never left out", False)):
            with _masks(left_out):
                _print_time(f"{form}, {name}", model, form)


def _print_choices() -> None:
    """The back-end that torch picks for each kind of mask, and what the fused ones say against it."""
    query = torch.zeros(_SHAPE, device="cuda", dtype=torch.bfloat16)
    batch, _, length, _ = _SHAPE
    ones = torch.ones(1, 1, length, 1, device="cuda", dtype=torch.bool)
    expanded = ones.expand(batch, 1, length, length)
    for name, mask in (("no mask", None), ("expanded mask", expanded), ("filled mask", expanded.contiguous())):
        chosen = SDPBackend(torch._fused_sdp_choice(query, query, query, mask))
        print(f"{name} (strides {mask.stride() if mask is not None else '-'}): {chosen.name}")
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION):
        for said in _objections(query, expanded, backend):
            print(f"  {backend.name}: {said}")


def _objections(query: torch.Tensor, mask: torch.Tensor, backend: SDPBackend) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(backend):
                torch.nn.functional.scaled_dot_product_attention(query, query, query, mask)
        except RuntimeError:
            pass
    lines = [str(item.message).partition(" (Triggered")[0].strip() for item in told]
    return [line for line in lines if "not used because" not in line] or ["runs"]


@contextmanager
def _masks(left_out: bool | None) -> Iterator[None]:
    """Masks of ones always left out, never, or (None) as the library decides."""
    from transformers import masking_utils

    name = "_ignore_bidirectional_mask_sdpa"
    decide = getattr(masking_utils, name)
    if left_out is not None:
        setattr(masking_utils, name, lambda *_, **__: left_out)
    try:
        torch._dynamo.reset()
        yield
    finally:
        setattr(masking_utils, name, decide)


def _print_time(name: str, model: str, form: str) -> None:
    subject = _subject(model)
    call = subject.eager if form == "eager" else subject.compiled(resolve_config(parse_config("triton"), "cuda"))
    for _ in range(3):
        call()
    found = profiling.device_time(profiling.record(call, _CALLS))
    assert found is not None  # noqa: S101 - main requires a GPU
    print(f"{name}: {found.busy_ms:.3f} ms on the device")
    for kernel, launches, ms in found.kernels[:4]:
        print(f"  {ms:7.3f} ms  {launches:4.0f} x {kernel[:110]}", flush=True)


def _subject(model: str) -> Subject:
    spec = find("huggingface", model)
    batch_size = spec.batch_size(Phase.INFERENCE, "cuda")
    cell = Cell(spec.suite, spec.name, Phase.INFERENCE, "bfloat16", "cuda", batch_size, parse_config("triton"))
    seed_everything()
    return Subject(cell, spec.build(batch_size, Phase.INFERENCE, "cuda"))


if __name__ == "__main__":
    main()

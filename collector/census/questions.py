"""What only a GPU can decide while code is generated: the questions that came up, with their answers and where these are from.

Inductor times whether to pad a matrix product (`pad_mm`). That is the one thing of its default program that is timed. Here
the answer is what a GPU is known to have decided, or else an assumption that is the same for every census, so that two
commits are compared with one answer. Whatever else asks for a timing makes the code of the cell not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collector.census.private_names import find, replace
from collector.vocabulary import short_hash

#: Where the answer is from if no GPU's is known.
ASSUMED = "assumed"
PAD_MM = "pad_mm"
TIMING = "timing"


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a GPU decides by its clock. `key` names it within a cell; `source` says where the answer is from."""

    kind: str
    key: str
    answer: bool | None
    source: str
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return asdict(self)


class Questions:
    """The questions of one cell; `answers` are by key, with where each is from."""

    def __init__(self, answers: Mapping[str, tuple[bool, str]] | None = None) -> None:
        self._answers = dict(answers or {})
        self.asked: dict[str, Question] = {}

    def attach(self) -> Questions:
        """Answer for Inductor in this process from now on; returns itself."""
        replace("torch._inductor.fx_passes.pad_mm:get_cached_should_pad", self._should_pad)
        benchmarking = find("torch._inductor.runtime:benchmarking")
        base = find("torch._inductor.runtime.benchmarking:Benchmarker")
        for kind in vars(benchmarking).values():
            if isinstance(kind, type) and issubclass(kind, base):
                for name in {"benchmark", "benchmark_gpu", "benchmark_cpu"} & vars(kind).keys():
                    setattr(kind, name, self._time)
        return self

    def _should_pad(self, key: str) -> bool:
        name = short_hash(key)
        answer, source = self._answers.get(name) or (assume_padding(key), ASSUMED)
        self.asked.setdefault(name, Question(PAD_MM, name, answer, source, key))
        return answer

    def _time(self, *_: Any, **__: Any) -> Any:
        self.asked.setdefault(TIMING, Question(TIMING, TIMING, None, ""))
        raise RuntimeError("a census times nothing")


#: The first sizes of a product in the key by which Inductor remembers its decision: `torch.Size([8192, 768])`.
_SIZES = re.compile(r"torch\.Size\(\[([\d, ]+)\]\)")
#: The sizes of a product below which padding does not win: its smallest dimension, and its multiplications.
_SMALLEST_DIMENSION, _FEWEST_PRODUCTS = 64, 1.5e9
#: The number of elements in half precision to which Inductor pads.
_ALIGNMENT = 8


def assume_padding(key: str) -> bool:
    """Return whether a GPU would pad a product, by its sizes: what H100 and H200 decided in the measured cells.

    They pad large products in half precision whose inner dimension or columns are not aligned. They pad none in float32, and
    none of which the rows alone are not aligned.
    """
    sizes = [[int(size) for size in found.split(",")] for found in _SIZES.findall(key)[:2]]
    if "torch.float32" in key or len(sizes) < 2:
        return False
    (*batch, rows, inner), columns = sizes[0], sizes[1][-1]
    is_large = min(rows, inner, columns) >= _SMALLEST_DIMENSION
    is_large = is_large and math.prod((*batch, rows, inner, columns)) >= _FEWEST_PRODUCTS
    return is_large and bool(inner % _ALIGNMENT or columns % _ALIGNMENT)

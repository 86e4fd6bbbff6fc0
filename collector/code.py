"""The code that a compiler generated for a cell: which kernels and wrappers, by their content."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collector.vocabulary import short_hash

#: Stands for a kernel's own name in its text, and with its `text_id` behind it for the kernel in a wrapper.
KERNEL = "KERNEL_NAME"
#: What a wrapper's text has in place of a kernel's definition.
DEFINITION = "KERNEL_TEXT"
#: Characters of a text that are read: a packed one could hold anything.
_LONGEST = 16 << 20
#: Of an environment: the name of the commit whose Python files are used. What they generate is in the code; files that
#: act when the code runs are compared by who knows them (`jobs.plan.spared_cells`).
NAME_OF_SOURCE = "source"


def pack_text(text: str) -> str:
    """A text as it is kept in a bundle."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()


def unpack_text(packed: str) -> str:
    """The inverse of `pack_text`, without what is beyond 16 MiB. Raises `ValueError` for anything else."""
    try:
        return (
            zlib.decompressobj()
            .decompress(base64.b64decode(packed, validate=True), _LONGEST)
            .decode("utf-8", "replace")
        )
    except zlib.error as error:
        raise ValueError(f"a text of code is damaged ({error})") from error


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a graph: its name, the id of its text, and the operators that it was fused from, where the code says so."""

    name: str
    text_id: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled graph: the id of the text that calls the kernels, and the kernels in the order of their definition."""

    wrapper: str
    kernels: tuple[Kernel, ...] = ()

    def script(self, texts: Mapping[str, str]) -> str:
        """The generated code as it was, a script that runs; `texts` are by id. A kernel without a text is None."""
        text = texts[self.wrapper]
        for kernel in self.kernels:
            placed = f"{KERNEL}_{kernel.text_id}"
            body = texts.get(kernel.text_id, "None  # its text is not stored").replace(KERNEL, kernel.name)
            text = text.replace(f"{placed} = {DEFINITION}", f"{kernel.name} = {body}").replace(placed, kernel.name)
        return text


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a cell, a graph after the other. Equal `code_id` means equal code but for comments and kernels' names."""

    code_id: str
    graphs: tuple[Graph, ...]

    @classmethod
    def of(cls, graphs: tuple[Graph, ...]) -> Code:
        """The code of these graphs."""
        return cls(
            short_hash([[graph.wrapper, *(kernel.text_id for kernel in graph.kernels)] for graph in graphs], 16), graphs
        )

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of all graphs."""
        return [kernel for graph in self.graphs for kernel in graph.kernels]

    @property
    def text_ids(self) -> set[str]:
        """The ids of the texts of wrappers and kernels."""
        return {graph.wrapper for graph in self.graphs} | {kernel.text_id for kernel in self.kernels}

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        graphs = [
            {
                "wrapper": graph.wrapper,
                "kernels": [[kernel.name, kernel.text_id, kernel.source] for kernel in graph.kernels],
            }
            for graph in self.graphs
        ]
        return {"code_id": self.code_id, "graphs": graphs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Code:
        """The inverse of `to_json`. Raises `KeyError`, `ValueError` or `TypeError` on anything else."""
        graphs = (
            Graph(
                str(graph["wrapper"]),
                tuple(Kernel(str(name), str(text_id), str(source)) for name, text_id, source in graph["kernels"]),
            )
            for graph in data["graphs"]
        )
        return cls(str(data["code_id"]), tuple(graphs))


def known_by(code_id: str | None, program_id: str | None, environment: Mapping[str, Any]) -> str:
    """What two measurements of a cell share if nothing that their latencies depend on differs; empty without code."""
    if not code_id:
        return ""
    libraries = {key: value for key, value in environment.items() if key != NAME_OF_SOURCE}
    return short_hash([code_id, program_id, libraries], 16)

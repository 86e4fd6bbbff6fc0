"""The code that a compiler generated for a cell: kernels and wrappers, identified by their content, and a wrapper's calls.

A wrapper calls kernels and library functions with tensors of known sizes, in an order. It is read as a syntax tree and never
run. Numbers that depend on a dynamic shape have the value that Inductor wrote down as an example. A value that the reader
does not understand is None.
"""

from __future__ import annotations

import ast
import base64
import math
import operator
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.vocabulary import short_hash

#: The placeholder of a kernel's own name in its text; in a wrapper the kernel's placeholder is this, `_` and its `text_id`.
KERNEL = "KERNEL_NAME"
#: The placeholder of a kernel's definition in a wrapper's text.
DEFINITION = "KERNEL_TEXT"
#: The most bytes of a text that are unpacked: a damaged bundle could hold anything.
_LONGEST = 16 << 20
#: The key of an environment with the name of the commit whose Python files are used. The code that these files generate is
#: compared by `code_id`; `jobs.plan.spared_cells` compares the files that act when the code runs.
NAME_OF_SOURCE = "source"


def pack_text(text: str) -> str:
    """Compress and base64-encode a text, as a bundle keeps it."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()


def unpack_text(packed: str) -> str:
    """Return the text that `pack_text` packed, cut to 16 MiB. Raises `ValueError` if it is damaged."""
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
    """A kernel of a graph: its name, the id of its text, and the operators that it was fused from if the code names them."""

    name: str
    text_id: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled graph: the id of the text that calls the kernels, and the kernels in the order of their definition."""

    wrapper: str
    kernels: tuple[Kernel, ...] = ()

    def script(self, texts: Mapping[str, str]) -> str:
        """Return the generated code as a script that runs. `texts` are by id; a kernel whose text is missing becomes None."""
        text = texts[self.wrapper]
        for kernel in self.kernels:
            placed = f"{KERNEL}_{kernel.text_id}"
            body = texts.get(kernel.text_id, "None  # its text is not stored").replace(KERNEL, kernel.name)
            text = text.replace(f"{placed} = {DEFINITION}", f"{kernel.name} = {body}").replace(placed, kernel.name)
        return text


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a cell, graph by graph. Codes with equal `code_id` differ at most in comments and kernels' names."""

    code_id: str
    graphs: tuple[Graph, ...]

    @classmethod
    def of(cls, graphs: tuple[Graph, ...]) -> Code:
        """Build the code of these graphs and compute its `code_id`."""
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
        """Return a JSON object that `from_json` reads back."""
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
        """Build a code from the object that `to_json` made. Raises `KeyError`, `ValueError` or `TypeError` for other data."""
        graphs = (
            Graph(
                str(graph["wrapper"]),
                tuple(Kernel(str(name), str(text_id), str(source)) for name, text_id, source in graph["kernels"]),
            )
            for graph in data["graphs"]
        )
        return cls(str(data["code_id"]), tuple(graphs))


def known_by(code_id: str | None, program_id: str | None, environment: Mapping[str, Any]) -> str:
    """Return a hash of code, program and environment, or "" without code.

    Two measurements of a cell with equal hashes agree in everything that their latencies depend on.
    """
    if not code_id:
        return ""
    libraries = {key: value for key, value in environment.items() if key != NAME_OF_SOURCE}
    return short_hash([code_id, program_id, libraries], 16)


#: Bytes of an element, by torch's name of the dtype.
ITEM_BYTES = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}
_ALLOCATES = re.compile(r"empty_strided_\w+|rand_strided")
_LIBRARY = re.compile(r"(?:extern_kernels|torch\.ops\.aten|aten)\.(\w+)")
_HANDLE = re.compile(r"# \[Provenance debug handles\] (\S+)")
_EXAMPLES = ("get_args", "benchmark_compiled_module")
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor that is passed to a call: the buffer's name, size and stride in elements, and torch's name of the dtype."""

    name: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Return the number of elements in memory; an expanded dimension (stride 0) counts as one."""
        return math.prod(size for size, stride in zip(self.size, self.stride, strict=False) if stride)

    @property
    def item_bytes(self) -> int:
        """Return the bytes of an element; 0 for an unknown dtype."""
        return ITEM_BYTES.get(self.dtype, 0)


@dataclass(slots=True)
class Call:
    """A call of a generated kernel, which has a `text_id`, or of a library's function, which has ATen's name.

    `arguments` are layouts, numbers, tuples, or None. `out` is the result of a library's function if the wrapper shows its
    layout, and `handle` the key of the call in Inductor's provenance, such as `extern_kernels.mm:7`.
    """

    name: str
    text_id: str = ""
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    out: TensorLayout | None = None
    handle: str = ""

    @property
    def label(self) -> str:
        """Return a kernel's name, or a library function's name with the sizes of its tensors: `mm [64, 32] [32, 16]`."""
        sizes = (str(list(tensor.size)) for tensor in self.tensors if len(tensor.size) > 1)
        return self.name if self.text_id else " ".join([self.name, *sizes])

    @property
    def tensors(self) -> list[TensorLayout]:
        """Return the tensors among the arguments, in order."""
        return [value for value in (*self.arguments, *self.keywords.values()) if isinstance(value, TensorLayout)]


def calls_of(graph: Graph, texts: Mapping[str, str]) -> list[Call]:
    """Return the calls of a graph's wrapper in order; `texts` are by id.

    Raises:
        ValueError: the wrapper is not stored, or is not Python (a C++ wrapper).
    """
    try:
        tree = ast.parse(texts[graph.wrapper])
    except (KeyError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the wrapper cannot be read ({type(error).__name__})") from error
    names = {kernel.text_id: kernel.name for kernel in graph.kernels}
    return _Reader(tree, names, texts[graph.wrapper].splitlines()).calls


class _Reader:
    """An interpreter of a wrapper's statements that keeps the layout of each name so far."""

    def __init__(self, tree: ast.Module, names: Mapping[str, str], lines: list[str]) -> None:
        self.calls: list[Call] = []
        self._names, self._lines = names, lines
        self._known: dict[str, Any] = {}
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for name in _EXAMPLES:
            if name in self._functions:
                self._follow(self._functions[name].body)
        self.calls.clear()
        if "call" in self._functions:
            self._follow(self._functions["call"].body)

    def _follow(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found = self._value(value)
                    if found is not None or name not in self._known:
                        self._known[name] = _named(found, name)
                case ast.Assign(value=ast.Call() as call) | ast.Expr(value=ast.Call() as call):
                    self._called(call)
                case ast.With(body=body) | ast.If(body=body) | ast.For(body=body) | ast.Try(body=body):
                    self._follow(body)
                case _:
                    pass

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self._value(part) for part in parts)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._value(operand)
                return -value if isinstance(value, int | float) else None
            case ast.BinOp(left=left, op=op, right=right):
                return _computed(op, self._value(left), self._value(right))
            case ast.Attribute():
                return _dotted(node).removeprefix("torch.")
            case ast.Subscript(value=value):
                of = self._value(value)
                return of if isinstance(of, Call) else None
            case ast.Call():
                return self._called(node)
        return None

    def _called(self, node: ast.Call) -> Any:
        """Return the value of a call expression, and record the call if its function is a kernel's or a library's."""
        function = _dotted(node.func)
        last = function.rpartition(".")[2]
        if isinstance(node.func, ast.Subscript) and _dotted(node.func.value).endswith("partitions"):
            number = self._value(node.func.slice)
            if partition := self._functions.get(f"partition_{number}"):
                self._follow(partition.body)
            return None
        values = [self._value(argument) for argument in node.args]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "as_strided" and len(values) == 2:
            base = _tensor(self._value(node.func.value))
            return _layout(base.name, values[0], values[1], base.dtype) if base else None
        keywords = {word.arg: self._value(word.value) for word in node.keywords if word.arg}
        if _ALLOCATES.fullmatch(last):
            size, stride, dtype = (*values, None, None, None)[:3]
            return _layout("", size, stride, keywords.get("dtype", dtype))
        if last in ("reinterpret_tensor", "_reinterpret_tensor") and len(values) >= 3:
            base = _tensor(values[0])
            return _layout(base.name, values[1], values[2], base.dtype) if base else None
        if last == "alloc_from_pool" and len(values) >= 5:
            return _layout("", values[3], values[4], values[2])
        if last == "assert_size_stride" and len(values) >= 3 and isinstance(node.args[0], ast.Name):
            self._told(node.args[0].id, values[1], values[2])
            return None
        text_id = function.removesuffix(".run").removeprefix(f"{KERNEL}_")
        if last == "run" and text_id in self._names:
            self.calls.append(Call(self._names[text_id], text_id, tuple(map(_plain, values))))
            return None
        if library := _LIBRARY.match(function):
            out = keywords.pop("out", None)
            words = {name: _plain(value) for name, value in keywords.items()}
            call = Call(library[1], "", tuple(map(_plain, values)), words, _tensor(out), self._handle(node))
            self.calls.append(call)
            return call
        return None

    def _handle(self, node: ast.Call) -> str:
        """Return the provenance key from the comments right before a call; "" if there is none."""
        for line in reversed(self._lines[: node.lineno - 1]):
            if not line.lstrip().startswith("#"):
                break
            if found := _HANDLE.search(line):
                return found[1]
        return ""

    def _told(self, name: str, size: Any, stride: Any) -> None:
        """Store the layout that a wrapper asserts of a library function's result. Other names are left as they are."""
        known = self._known.get(name)
        if not isinstance(known, Call):
            return
        dtype = next((tensor.dtype for tensor in known.tensors), "")
        layout = _layout(name, size, stride, dtype)
        known.out, self._known[name] = known.out or layout, layout


def _layout(name: str, size: Any, stride: Any, dtype: Any) -> TensorLayout | None:
    is_known = all(isinstance(part, tuple) and all(type(one) is int for one in part) for part in (size, stride))
    return TensorLayout(name, size, stride, dtype) if is_known and isinstance(dtype, str) else None


def _computed(op: ast.operator, left: Any, right: Any) -> int | None:
    if type(left) is not int or type(right) is not int:
        return None
    if isinstance(op, ast.FloorDiv):
        return left // right if right else None
    compute = _ARITHMETIC.get(type(op))
    return int(compute(left, right)) if compute else None


def _named(value: Any, name: str) -> Any:
    return TensorLayout(name, value.size, value.stride, value.dtype) if isinstance(value, TensorLayout) else value


def _tensor(value: Any) -> TensorLayout | None:
    if isinstance(value, Call):
        return value.out
    return value if isinstance(value, TensorLayout) else None


def _plain(value: Any) -> Any:
    return value.out if isinstance(value, Call) else value


def _dotted(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""

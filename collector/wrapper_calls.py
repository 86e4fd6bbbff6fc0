"""The calls that a generated wrapper makes: which kernel or library function gets tensors of which sizes, in their order.

The wrapper is read as a syntax tree and never run. Numbers that depend on a dynamic shape have the value that Inductor wrote
down as an example. What the reader does not understand is None.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.code import KERNEL, Graph

#: Bytes of an element by torch's name of the dtype.
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
    """A tensor as a call gets it: the buffer's name, size and stride in elements, and torch's name of the dtype."""

    name: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Return the number of elements in memory: a dimension that is expanded has one."""
        return math.prod(size for size, stride in zip(self.size, self.stride, strict=False) if stride)

    @property
    def item_bytes(self) -> int:
        """Return the size of an element; 0 for a dtype that is not known."""
        return ITEM_BYTES.get(self.dtype, 0)


@dataclass(slots=True)
class Call:
    """A call of a generated kernel, which has a `text_id`, or of a library's function by ATen's name.

    `arguments` are layouts, numbers, tuples, or None. `out` is the result of a library's function where that is told, and
    `handle` the key by which Inductor's provenance knows it, `extern_kernels.mm:7`.
    """

    name: str
    text_id: str = ""
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    out: TensorLayout | None = None
    handle: str = ""

    @property
    def label(self) -> str:
        """Return a kernel's name, or a library's function with the sizes of its tensors: `mm [64, 32] [32, 16]`."""
        sizes = (str(list(tensor.size)) for tensor in self.tensors if len(tensor.size) > 1)
        return self.name if self.text_id else " ".join([self.name, *sizes])

    @property
    def tensors(self) -> list[TensorLayout]:
        """Return the tensors among the arguments, in their order."""
        return [value for value in (*self.arguments, *self.keywords.values()) if isinstance(value, TensorLayout)]


def calls_of(graph: Graph, texts: Mapping[str, str]) -> list[Call]:
    """Return the calls of a graph's wrapper in their order; `texts` are by id.

    Raises:
        ValueError: the wrapper is not stored, or no Python, as a C++ wrapper.
    """
    try:
        tree = ast.parse(texts[graph.wrapper])
    except (KeyError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the wrapper cannot be read ({type(error).__name__})") from error
    names = {kernel.text_id: kernel.name for kernel in graph.kernels}
    return _Reader(tree, names, texts[graph.wrapper].splitlines()).calls


class _Reader:
    """Follows the statements of a wrapper, and knows the layout of each name so far."""

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
        """Return what a call gives, and note the call if it is one of a kernel or a library's function."""
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
        """Return the key in the comments right before a call; empty where there is none."""
        for line in reversed(self._lines[: node.lineno - 1]):
            if not line.lstrip().startswith("#"):
                break
            if found := _HANDLE.search(line):
                return found[1]
        return ""

    def _told(self, name: str, size: Any, stride: Any) -> None:
        """Take the layout that a wrapper asserts of an input or of what a library's function returned."""
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

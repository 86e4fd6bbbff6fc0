"""What Inductor generated in this process: the kernels and wrappers of each graph, normalised and known by their content.

Inductor logs a graph's code when it has generated it or found it in its cache. One text is the wrapper: a Python module that
defines the kernels as strings and calls them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress

from collector.code import DEFINITION, KERNEL, Code, Graph, Kernel
from collector.vocabulary import short_hash

#: The artifact logger's name is private and has moved.
_LOGGERS = ("torch._inductor.codecache.__output_code", "torch._inductor.graph.__output_code")
_LOGGED = "Output code: \n"
#: A kernel's definition: comments, a name, and a call that gets the source between triple quotes.
_KERNEL = re.compile(
    r"^(?P<comments>(?:#[^\n]*\n)*)(?P<name>\w+) = (?P<body>async_compile\.\w+\((?:[^\n']|'(?!''))*?r?'''.*?'''[^\n]*\))$",
    re.MULTILINE | re.DOTALL,
)
_SOURCE = re.compile(r"Source Nodes: .*")
#: Characters of the operators of a kernel.
_LENGTH = 300

#: What differs from host to host, or from process to process, and says nothing about the program.
_UNSTEADY = (
    (re.compile(r"^# kernel path: .*\n", re.MULTILINE), ""),
    (re.compile(r"'backend_hash': '\w*',? ?"), ""),
    # A folder before a file's name. A division has a word, a bracket or a space before its slash.
    (re.compile(r"(?<=[\"'# (])/(?:[\w.+~-]+/)+"), ""),
    (re.compile(r"\b0x[0-9a-f]{8,}\b"), "0x"),
    (re.compile(r"\bc[a-z2-7]{40,}\.(?=cubin|hsaco)"), ""),  # a kernel's file in the cache, which a C++ wrapper loads
)
#: Comments of Python and C++ on a line of their own, Python's behind code, and empty lines. `#include` is no comment, nor
#: is `#if`; Inductor writes no space after these hashes, and one in each of its comments.
_COMMENT = re.compile(
    r"^[ \t]*(?:#(?!(?:include|pragma|define|undef|if|ifdef|ifndef|elif|else|endif)\b)[^\n]*|//[^\n]*)?\n|[ ]+# [^\n'\"]*$",
    re.MULTILINE,
)


#: An array of a C++ wrapper. Inductor shares one between two uses or not, by the addresses of objects in its process.
_ARRAY = re.compile(r"^\s*static constexpr int64_t \*?(\w+)(?:\[\] = |=)(\{[^}]*\}|nullptr);\n", re.MULTILINE)


class CodeLog(logging.Handler):
    """Collects the wrapper of every graph that Inductor compiles, in order."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._wrappers: dict[str, None] = {}  # a graph may be logged twice; its number is in the text

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the message if it is code."""
        message = record.getMessage()
        if message.startswith(_LOGGED) and not _is_candidate():
            self._wrappers[message.removeprefix(_LOGGED)] = None

    def attach(self) -> CodeLog:
        """Listens to Inductor; returns itself. What the user asked to be logged is still logged, and nothing else."""
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            if not logger.isEnabledFor(logging.DEBUG):
                logger.setLevel(logging.DEBUG - 1)  # at DEBUG itself Inductor leaves files of autotuning code behind
                logger.propagate = False
            logger.addHandler(self)
        return self

    def take(self) -> tuple[Code | None, dict[str, str]]:
        """The code of the graphs so far and its texts by id; None if there was none."""
        texts: dict[str, str] = {}
        graphs = tuple(_graph(wrapper, texts) for wrapper in self._wrappers)
        return (Code.of(graphs) if graphs else None), texts


#: An argument with which a wrapper can be tried: its name, shape and dtype.
_ARGUMENT = re.compile(r"^ +(\w+) = rand_strided\(\(([\d, ]*)\), .*\bdtype=torch\.(\w+)\)", re.MULTILINE)


def saved_operators(wrappers: Iterable[str]) -> dict[tuple[tuple[int, ...], str], list[str]]:
    """Return the operators whose outputs the backward graphs among these wrappers take, by shape and dtype.

    AOTAutograd calls an argument of a backward graph as the node of the forward graph that made it: `convolution_3`.
    """
    found: dict[tuple[tuple[int, ...], str], list[str]] = {}
    for wrapper in wrappers:
        arguments = _ARGUMENT.findall(wrapper)
        if not any(name.startswith(_TANGENT) for name, _, _ in arguments):
            continue
        for name, shape, dtype in arguments:
            if not name.startswith((_TANGENT, "primals_")):
                sizes = tuple(int(size) for size in shape.split(",") if size.strip())
                found.setdefault((sizes, dtype), []).append(re.sub(r"_\d+$", "", name))
    return found


_TANGENT = "tangents_"


def _is_candidate() -> bool:
    """Whether the graph that Inductor works on is a choice that it tries while tuning, and no part of the program.

    Whoever finds the tuning's results in a cache compiles none of these.
    """
    with suppress(ImportError, AttributeError):
        from torch._inductor.virtualized import V

        return str(V.graph.name).startswith("benchmark_")
    return False


def _graph(wrapper: str, texts: dict[str, str]) -> Graph:
    """The graph of a wrapper; adds its texts."""
    for unsteady, steady in _UNSTEADY:
        wrapper = unsteady.sub(steady, wrapper)
    kernels: list[Kernel] = []

    def cut_out(found: re.Match[str]) -> str:
        name = found["name"]
        text_id = _keep(re.sub(rf"\b{name}\b", KERNEL, found["body"]), texts)
        source = _SOURCE.search(found["comments"])
        kernels.append(Kernel(name, text_id, source[0][:_LENGTH] if source else ""))
        return f"{found['comments']}{name} = {DEFINITION}"

    wrapper = _KERNEL.sub(cut_out, wrapper)
    for number, kernel in enumerate(kernels):
        if not kernel.source and (
            call := re.search(rf"Source Nodes: ([^\n]*)\n(?:\s*#[^\n]*\n)*[^\n]*\b{kernel.name}\b", wrapper)
        ):
            kernels[number] = Kernel(kernel.name, kernel.text_id, f"Source Nodes: {call[1]}"[:_LENGTH])
    if kernels:
        ids = {kernel.name: kernel.text_id for kernel in kernels}
        names = re.compile(rf"\b(?:{'|'.join(ids)})\b")
        wrapper = names.sub(lambda found: f"{KERNEL}_{ids[found[0]]}", wrapper)
    return Graph(_keep(wrapper, texts), tuple(kernels))


def _keep(text: str, texts: dict[str, str]) -> str:
    """Adds a text under the id of what it says, without comments and names of arrays; returns the id."""
    values = dict(_ARRAY.findall(text))
    told = re.sub(r"\bint_array_\w+", lambda found: values.get(found[0], found[0]), _ARRAY.sub("", text))
    text_id = short_hash(_COMMENT.sub("", told), 16)
    texts.setdefault(text_id, text)
    return text_id

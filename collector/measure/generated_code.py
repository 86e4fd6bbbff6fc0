"""The code that Inductor generated in this process: kernels and wrappers, identified by content, and their source lines.

Inductor logs a graph's code when it has generated it or found it in its cache. One text is the wrapper: a Python module that
defines the kernels as strings and calls them. It is normalised before it is compared.

Inductor's provenance (torch 2.11 and newer) is off by default. It adds comments to the generated code and a field to torch's
compilation metrics: for each kernel the stack traces of the operators in it, even if the code comes from a cache. The traces name
the source lines whose operators Inductor fused into the kernel.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from collector.code import DEFINITION, KERNEL, Code, Graph, Kernel, calls_of
from collector.masking import shorten
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
#: The most characters of a kernel's operators.
_LENGTH = 300

#: Patterns of text that differs from host to host, or from process to process, and says nothing about the program.
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


#: An array of a C++ wrapper. Whether two uses share an array depends on the addresses of objects in Inductor's process.
_ARRAY = re.compile(r"^\s*static constexpr int64_t \*?(\w+)(?:\[\] = |=)(\{[^}]*\}|nullptr);\n", re.MULTILINE)


class CodeLog(logging.Handler):
    """A handler that collects the wrapper of every graph that Inductor compiles, in order."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._wrappers: dict[str, None] = {}  # a graph may be logged twice; its number is in the text

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message if it is code of the program."""
        message = record.getMessage()
        if message.startswith(_LOGGED) and not _is_candidate():
            self._wrappers[message.removeprefix(_LOGGED)] = None

    def attach(self) -> CodeLog:
        """Listen to Inductor, and return self. Only messages that the user requested are still logged elsewhere."""
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            if not logger.isEnabledFor(logging.DEBUG):
                logger.setLevel(logging.DEBUG - 1)  # at exactly DEBUG Inductor leaves files of autotuning code behind
                logger.propagate = False
            logger.addHandler(self)
        return self

    def take(self) -> tuple[Code | None, dict[str, str]]:
        """Return the code of the graphs so far, or None if there are none, and its texts by id."""
        texts: dict[str, str] = {}
        graphs = tuple(_graph(wrapper, texts) for wrapper in self._wrappers)
        return (Code.of(graphs) if graphs else None), texts


#: An example argument in a wrapper: its name, shape and dtype.
_ARGUMENT = re.compile(r"^ +(\w+) = rand_strided\(\(([\d, ]*)\), .*\bdtype=torch\.(\w+)\)", re.MULTILINE)


def saved_operators(wrappers: Iterable[str]) -> dict[tuple[tuple[int, ...], str], list[str]]:
    """Return the operators whose outputs the backward graphs among these wrappers take, by shape and dtype.

    AOTAutograd names an argument of a backward graph after the node of the forward graph that made it: `convolution_3`.
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
    """Return whether the graph that Inductor works on is a candidate of tuning, and no part of the program.

    A process that finds the tuning's results in a cache compiles no candidates.
    """
    with suppress(ImportError, AttributeError):
        from torch._inductor.virtualized import V

        return str(V.graph.name).startswith("benchmark_")
    return False


def _graph(wrapper: str, texts: dict[str, str]) -> Graph:
    """Build the graph of a wrapper, and add its texts to `texts`."""
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
    """Add a text to `texts` under a hash of its content without comments and names of arrays; return this id."""
    values = dict(_ARRAY.findall(text))
    told = re.sub(r"\bint_array_\w+", lambda found: values.get(found[0], found[0]), _ARRAY.sub("", text))
    text_id = short_hash(_COMMENT.sub("", told), 16)
    texts.setdefault(text_id, text)
    return text_id


#: Inductor's level of provenance without the mapping between its graphs, which takes longer.
_KERNELS_ONLY = 2
#: The most lines of a kernel, characters of a line, and characters of a kernel's name (as in the profiler's tables).
_MOST, _LINE_LENGTH, _NAME = 6, 160, 160
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in [^\n]*\n[ \t]*([^\n]*)')


def ask_for_provenance() -> None:
    """Make Inductor record the stack traces of each kernel that it generates in this process, if this torch can."""
    with suppress(ImportError, AttributeError):
        from torch._inductor import config

        if not config.trace.provenance_tracking_level:
            config.trace.provenance_tracking_level = _KERNELS_ONLY


def kernel_lines(code: Code, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the source lines of each kernel that was compiled in this process since the counters were reset.

    `lines` has each line once, as `package/module.py:12  code`; `kernels` has the indices of lines by a kernel's name, or by the
    function and sizes of a library's call. Return {} if this torch records none.
    """
    entries: list[Any] = []
    with suppress(ImportError, AttributeError):
        from torch._dynamo.utils import get_compilation_metrics

        entries = list(get_compilation_metrics())
    recorded = [text for entry in entries for text in sorted(getattr(entry, "inductor_provenance", None) or ())]
    labels = []
    for graph in code.graphs if recorded else ():
        with suppress(ValueError):  # a C++ wrapper
            calls = calls_of(graph, texts)
            labels.append({call.handle: call.label for call in calls if call.handle})
    return lines_of(recorded, labels)


def lines_of(recorded: Iterable[str], labels: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """Return the result of `kernel_lines` from Inductor's records, JSON texts of the stack traces by `kernel:number`.

    `labels` has for each graph the names of its library calls by their keys. Each graph counts its calls from 1, so a record
    takes the names of a graph only if it has all keys of that graph, and none if several graphs fit.
    """
    numbers: dict[str, int] = {}
    kernels: dict[str, list[int]] = {}
    for text in recorded:
        traces_of = _traces(text)
        fitting = [one for one in labels if one and one.keys() <= traces_of.keys()]
        largest = [one for one in fitting if len(one) == max(map(len, fitting))]
        of_graph = largest[0] if len(largest) == 1 else {}
        for key, traces in traces_of.items():
            found = kernels.setdefault(of_graph.get(key, key.rpartition(":")[0])[:_NAME], [])
            for line in dict.fromkeys(filter(None, map(_line, traces))):
                number = numbers.setdefault(line, len(numbers))
                if number not in found and len(found) < _MOST:
                    found.append(number)
    used = {name: found for name, found in kernels.items() if found}
    return {"lines": list(numbers), "kernels": used} if used else {}


def _traces(text: str) -> dict[str, list[str]]:
    with suppress(ValueError, TypeError, AttributeError):
        return {str(key): [str(trace) for trace in traces] for key, traces in json.loads(text).items()}
    return {}


def _line(trace: str) -> str:
    """Return the innermost line of a stack trace outside of torch, else the innermost line; "" if there is none."""
    frames = [(shorten(path), number, code.strip()) for path, number, code in _FRAME.findall(trace)]
    outside = [frame for frame in frames if not frame[0].startswith("torch/")]
    if not frames:
        return ""
    path, number, code = (outside or frames)[-1]
    # A file outside of any package is the user's own: its folder is left out.
    return f"{path.rpartition('/')[2] if path.startswith('/') else path}:{number}  {code}"[:_LINE_LENGTH].rstrip()

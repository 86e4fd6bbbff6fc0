"""Where in the model a generated kernel comes from: the lines of source whose operators Inductor fused into it.

Inductor's provenance (torch 2.11 and newer) is off by default. It adds comments to the generated code and a field to torch's
compilation metrics: for each kernel the stack traces of the operators in it, also where the code comes from a cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from collector.code import Code, calls_of
from collector.masking import shorten

#: Inductor's level without the mapping between its graphs, which takes longer.
_KERNELS_ONLY = 2
#: Lines of a kernel and characters of a line that are kept, and of a kernel's name as the profiler keeps it.
_MOST, _LENGTH, _NAME = 6, 160, 160
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in [^\n]*\n[ \t]*([^\n]*)')


def ask_for_provenance() -> None:
    """Let Inductor note the stack traces of each kernel it generates in this process, if this torch can."""
    with suppress(ImportError, AttributeError):
        from torch._inductor import config

        if not config.trace.provenance_tracking_level:
            config.trace.provenance_tracking_level = _KERNELS_ONLY


def kernel_lines(code: Code, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the lines of source of each kernel compiled in this process since the counters were reset.

    `lines` has each line once, as `package/module.py:12  code`; `kernels` has their numbers by a kernel's name, and by the
    function and sizes of a library's call. Empty where this torch notes none.
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
    """Return what `kernel_lines` does from Inductor's own records, JSON texts of the stack traces by `kernel:number`.

    `labels` name the keys of a graph's calls of libraries. Each graph counts from 1, so they are of the record with all of
    them, and of none where several graphs fit.
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
    """Return the innermost line of a stack trace outside of torch, else the innermost one; empty without any."""
    frames = [(shorten(path), number, code.strip()) for path, number, code in _FRAME.findall(trace)]
    outside = [frame for frame in frames if not frame[0].startswith("torch/")]
    if not frames:
        return ""
    path, number, code = (outside or frames)[-1]
    # A file outside of any package is somebody's own: its folder is not told.
    return f"{path.rpartition('/')[2] if path.startswith('/') else path}:{number}  {code}"[:_LENGTH].rstrip()

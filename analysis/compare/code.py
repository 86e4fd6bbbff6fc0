"""The generated code of two measurements side by side: which kernels were added, removed or changed.

Kernels are matched by their text first, then by their names without the number at the end. No query lives here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.compare.evidence import listed_kernels, stem
from collector.code import Code, Kernel
from db.errors import counted

SAME = "same code"
WRAPPER = "wrapper changed"
#: Of code whose text the database does not have.
DIFFERENT = "code changed"
CAME, WENT, CHANGED = "added", "removed", "changed"

#: Characters of a kernel's name that the profiler and the record of autotuning keep.
_NAME = 160


@dataclass(frozen=True, slots=True)
class KernelPair:
    """A kernel on both sides; None where a side has no such kernel."""

    base: Kernel | None
    new: Kernel | None

    @property
    def name(self) -> str:
        """The name on the new side, else on the base side."""
        kernel = self.new or self.base
        return kernel.name if kernel else ""

    @property
    def source(self) -> str:
        """The operations that it is made of, as Inductor says; may be empty."""
        kernel = self.new or self.base
        return kernel.source if kernel else ""

    @property
    def what(self) -> str:
        """`added`, `removed` or `changed`; empty where the text is the same."""
        if self.base is None or self.new is None:
            return CAME if self.new else WENT
        return "" if self.base.text_id == self.new.text_id else CHANGED


@dataclass(frozen=True, slots=True)
class CodeChanges:
    """What became of the generated code. `pairs` has all kernels: those of the new side in their order, then the removed ones."""

    same: bool
    pairs: tuple[KernelPair, ...]

    @property
    def kernels(self) -> tuple[KernelPair, ...]:
        """The kernels that were added, removed or changed."""
        return tuple(pair for pair in self.pairs if pair.what)

    @property
    def words(self) -> str:
        """`same code`, `3 kernels changed` (added and removed ones included) or `wrapper changed`."""
        if self.same:
            return SAME
        return f"{counted(len(self.kernels), 'kernel')} changed" if self.kernels else WRAPPER


def changes(base: Code, new: Code) -> CodeChanges:
    """The generated code of base against that of new. A kernel that several graphs share counts once."""
    before, after = _kernels(base), _kernels(new)
    same_text = {kernel.text_id: kernel for kernel in before}
    left = {kernel.text_id for kernel in before} - {kernel.text_id for kernel in after}
    by_stem: dict[str, list[Kernel]] = {}
    for kernel in before:
        if kernel.text_id in left:
            by_stem.setdefault(stem(kernel.name), []).append(kernel)
    others = Counter(stem(kernel.name) for kernel in after if kernel.text_id not in same_text)
    # Where one kernel became several, none of these is the same one.
    partners = {name: iter(kernels) for name, kernels in by_stem.items() if len(kernels) == others[name]}
    pairs = []
    for kernel in after:
        partner = same_text.get(kernel.text_id) or next(partners.get(stem(kernel.name), iter(())), None)
        pairs.append(KernelPair(partner, kernel))
    gone = [KernelPair(kernel, None) for name, of_name in by_stem.items() if name not in partners for kernel in of_name]
    return CodeChanges(base.code_id == new.code_id, (*pairs, *gone))


def _kernels(code: Code) -> list[Kernel]:
    """The kernels of all graphs, each text once."""
    first: dict[str, Kernel] = {}
    for kernel in code.kernels:
        first.setdefault(kernel.text_id, kernel)
    return list(first.values())


def winners(details: Mapping[str, Any]) -> dict[str, str]:
    """The configuration that autotuning chose, by the name of the kernel or operation; the last one counts."""
    entries = details.get("autotuned")
    rows = entries if isinstance(entries, list) else []
    return {str(row[0]): str(row[2]) for row in rows if isinstance(row, list | tuple) and len(row) >= 3}


@dataclass(frozen=True, slots=True)
class KernelEvidence:
    """A kernel with its device time (ms per call) and the configuration that won its autotuning; None where not known."""

    pair: KernelPair
    base_ms: float | None
    new_ms: float | None
    base_winner: str | None
    new_winner: str | None

    @property
    def what(self) -> str:
        """What became of it; `tuned differently` where only the chosen configuration differs."""
        return self.pair.what or ("tuned differently" if self.is_tuned_differently else "")

    @property
    def is_tuned_differently(self) -> bool:
        """Whether both sides tuned it and chose different configurations."""
        return None not in (self.base_winner, self.new_winner) and self.base_winner != self.new_winner


def kernel_evidence(changed: CodeChanges, base: Mapping[str, Any], new: Mapping[str, Any]) -> list[KernelEvidence]:
    """The kernels that came, went, changed or were tuned differently, with what both sides' details say of them.

    The largest change of time comes first. The profiler adds up kernels of one name, which several graphs may have.
    """
    times = [{name: ms for name, _, ms in listed_kernels(details, "compiled")} for details in (base, new)]
    chosen = [winners(details) for details in (base, new)]
    rows = []
    for pair in changed.pairs:
        base_name, new_name = (kernel.name[:_NAME] if kernel else "" for kernel in (pair.base, pair.new))
        both_times = times[0].get(base_name), times[1].get(new_name)
        rows.append(KernelEvidence(pair, *both_times, chosen[0].get(base_name), chosen[1].get(new_name)))
    return sorted((row for row in rows if row.what), key=lambda row: -abs((row.new_ms or 0.0) - (row.base_ms or 0.0)))

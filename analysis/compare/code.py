"""The generated code of two measurements side by side: which kernels came, went or changed, and which explain a change of time.

Kernels are matched by their text first, then by their names without the number at the end. No query lives here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.compare.evidence import REST, KernelChange, ListedKernel, listed_kernels, stem
from collector.code import Code, Kernel
from db.errors import counted

SAME = "same code"
WRAPPER = "wrapper changed"
#: Of code whose text the database does not have.
DIFFERENT = "code changed"
CAME, WENT, CHANGED = "came", "went", "changed"

#: A kernel explains a change of device time if it has this share of it. At most so many are named.
LEAST_SHARE, MOST = 0.1, 4
#: Relative change of device time below which there is nothing to explain.
_LEAST_CHANGE = 0.01
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
        """`came`, `went` or `changed`; empty where the text is the same."""
        if self.base is None or self.new is None:
            return CAME if self.new else WENT
        return "" if self.base.text_id == self.new.text_id else CHANGED


@dataclass(frozen=True, slots=True)
class CodeChanges:
    """What became of the generated code. `pairs` has all kernels: those of the new side in their order, then those that went."""

    same: bool
    pairs: tuple[KernelPair, ...]

    @property
    def kernels(self) -> tuple[KernelPair, ...]:
        """The kernels that came, went or changed."""
        return tuple(pair for pair in self.pairs if pair.what)

    @property
    def words(self) -> str:
        """`same code`, `3 kernels changed` (those that came or went included) or `wrapper changed`."""
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
    pairs = []
    for kernel in after:
        partner = same_text.get(kernel.text_id)
        if partner is None and by_stem.get(stem(kernel.name)):
            partner = by_stem[stem(kernel.name)].pop(0)
        pairs.append(KernelPair(partner, kernel))
    gone = [KernelPair(kernel, None) for kernels in by_stem.values() for kernel in kernels]
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


@dataclass(frozen=True, slots=True)
class KernelShare:
    """A kernel's part of a change of device time. `share` of 0.84 is 84 %; other kernels may make up for more than all of it."""

    name: str
    change_ms: float
    share: float
    what: str
    is_loss: bool

    @property
    def part(self) -> str:
        """`84 % of the loss`."""
        return f"{100 * self.share:.0f} % of the {'loss' if self.is_loss else 'gain'}"

    @property
    def text(self) -> str:
        """`triton_red_fused_sum_3 +0.21 ms, 84 % of the loss`, and what became of its code."""
        return f"{self.name} {self.change_ms:+.3g} ms, {self.part}" + (f" ({self.what})" if self.what else "")


def explained(
    base: Mapping[str, Any], new: Mapping[str, Any], changed: CodeChanges | None = None
) -> tuple[KernelShare, ...]:
    """The kernels that explain a change of the device time between two measurements' details, the largest share first.

    Empty where a side has no kernels, or their time differs by less than 1 %. A kernel that the profiler did not list, since
    24 others took longer, is taken to take as long as the last of these, unless the code says that it is not there.
    """
    times = kernel_times(base, new, changed)
    before, after = (sum(getattr(one, f"{side}_ms") or 0.0 for one, _ in times) for side in ("base", "new"))
    total = after - before
    if not times or abs(total) < _LEAST_CHANGE * max(before, after):
        return ()
    least = [_least_listed(details) for details in (base, new)]
    parts = []
    for one, what in times:
        base_ms = one.base_ms if one.base_ms is not None or what == CAME else min(least[0], one.new_ms or 0.0)
        new_ms = one.new_ms if one.new_ms is not None or what == WENT else min(least[1], one.base_ms or 0.0)
        change = (new_ms or 0.0) - (base_ms or 0.0)
        if one.name != REST and change / total >= LEAST_SHARE:
            parts.append(KernelShare(one.name, change, change / total, what, total > 0))
    return tuple(sorted(parts, key=lambda part: -part.share)[:MOST])


def kernel_times(
    base: Mapping[str, Any], new: Mapping[str, Any], changed: CodeChanges | None = None
) -> list[tuple[KernelChange, str]]:
    """The compiled kernels of both sides' details with what became of their code, as `pair_kernels` pairs them.

    Empty where a side has no kernels.
    """
    if not base.get("compiled_kernels") or not new.get("compiled_kernels"):
        return []
    return pair_kernels(listed_kernels(base, "compiled"), listed_kernels(new, "compiled"), changed)


def pair_kernels(
    base: Iterable[ListedKernel], new: Iterable[ListedKernel], changed: CodeChanges | None = None
) -> list[tuple[KernelChange, str]]:
    """The kernels of two lists with what became of their code, the largest change of time first; what was not listed comes last.

    A kernel is followed from base to new by its code, whatever its number; without code, and for a library's kernels, by its
    name. Kernels that share a name on a side are one entry, since the profiler adds them up.
    """
    group_of, whats = _groups(changed.pairs if changed else ())
    rows: dict[Any, dict[str, Any]] = {}
    for side, kernels in (("base", base), ("new", new)):
        for name, launches, ms in kernels:
            row = rows.setdefault(group_of.get((side, name), stem(name)), {"base": (None, None), "new": (None, None)})
            before = row[side]
            row[side] = ((before[0] or 0.0) + launches, (before[1] or 0.0) + ms)
            row["name"] = name if (side, name) in group_of else stem(name)
    pairs = [(KernelChange(row["name"], *row["base"], *row["new"]), whats.get(key, "")) for key, row in rows.items()]
    return sorted(pairs, key=lambda pair: _by_change(pair[0]))


def _by_change(one: KernelChange) -> tuple[bool, float, float, str]:
    return (one.name == REST, -abs(one.change_ms), -(one.new_ms or 0.0), one.name)


def _groups(pairs: Iterable[KernelPair]) -> tuple[dict[tuple[str, str], tuple[str, str]], dict[Any, str]]:
    """A group for every (side, name), the same for names of one kernel or of kernels that share a name; what became of each."""
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(key: tuple[str, str]) -> tuple[str, str]:
        while parent.setdefault(key, key) != key:
            key = parent[key]
        return key

    owners = []
    for pair in pairs:
        sides = (("base", pair.base), ("new", pair.new))
        keys = [(side, kernel.name[:_NAME]) for side, kernel in sides if kernel]
        parent[root(keys[0])] = root(keys[-1])
        owners.append((keys[0], pair.what))
    whats: dict[Any, str] = {}
    for key, what in owners:
        whats[root(key)] = what if whats.get(root(key), what) == what else CHANGED
    return {key: root(key) for key in list(parent)}, whats


def _least_listed(details: Mapping[str, Any]) -> float:
    """The least time that is listed, where some kernels are not; else 0."""
    times = {name: ms for name, _, ms in listed_kernels(details, "compiled")}
    return min((ms for name, ms in times.items() if name != REST), default=0.0) if REST in times else 0.0

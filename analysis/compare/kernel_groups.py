"""The device time of two measurements by groups of kernels: one fused kernel that became four is one group.

Inductor numbers kernels and names them by the operations that it fused, so kernels are grouped by operations. The times of all
groups add up to the times of the two measurements. No query lives here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.compare.side_differences import (
    CAME,
    CHANGED,
    REST,
    WENT,
    CodeChanges,
    ListedKernel,
    listed_kernels,
    places,
    source_lines,
    stem,
)
from db.store_errors import counted

#: Smallest share of a change of device time that a group explains, and most groups that are named.
LEAST_SHARE, MOST = 0.1, 4
OTHERS = "all other kernels"
#: Relative change of device time below which there is nothing to explain.
_LEAST_CHANGE = 0.01
#: Characters of a kernel's name that the profiler keeps.
_NAME = 160
_FUSED = re.compile(r"^(?:triton|cpp)_(?:\w{3}_)?fused_(.*?)(?:_\d+)?$")
#: Kernels of one side were fused otherwise on the other side if they share this part of the smaller one's operations.
_SHARED = 0.8
#: Operations that a group is named after: the first one that its longest kernel has.
_CALLED = (
    *("softmax", "layer_norm", "group_norm", "batch_norm", "convolution", "attention", "embedding"),
    *("loss", "gelu", "silu", "relu", "sigmoid", "tanh", "pool", "rsqrt", "dropout", "cumsum", "gather", "cat"),
    *("mean", "sum", "clone", "copy"),
)


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Kernels of the same operations on both sides: names, launches and milliseconds per call.

    `what` is the change of their code: `added`, `removed` or `changed`; empty if there is none, or it is not known. `unlisted` is
    the side whose profile lists only kernels that take longer. The group's time on that side is a guess: the most it can be.
    """

    base: tuple[ListedKernel, ...] = ()
    new: tuple[ListedKernel, ...] = ()
    what: str = ""
    unlisted: str = ""

    @property
    def base_ms(self) -> float | None:
        """Return the time in base; None where base has none of these kernels."""
        return _total(self.base, 2)

    @property
    def new_ms(self) -> float | None:
        """Return the time in new; None where new has none of these kernels."""
        return _total(self.new, 2)

    @property
    def base_launches(self) -> float | None:
        """Return the launches in base; None where they are not known."""
        return None if self.unlisted == "base" else _total(self.base, 1)

    @property
    def new_launches(self) -> float | None:
        """Return the launches in new; None where they are not known."""
        return None if self.unlisted == "new" else _total(self.new, 1)

    @property
    def change_ms(self) -> float:
        """Milliseconds per call that new spends longer in the group."""
        return (self.new_ms or 0.0) - (self.base_ms or 0.0)

    @property
    def is_refused(self) -> bool:
        """Return whether both sides fused differently: other operations, or into another number of kernels."""
        names = [{stem(name) for name, *_ in side} for side in (self.base, self.new)]
        sizes = len(self.base), len(self.new)
        return bool(all(sizes) and not self.unlisted and (sizes[0] != sizes[1] or names[0] != names[1]))

    @property
    def name(self) -> str:
        """`1 fused softmax kernel became 4` if both sides fused differently; else a name, for several kernels without number."""
        if self.is_refused:
            return f"{self._kernels(self.base)} became {self._number}"
        names = [name for name, *_ in self.new or self.base]
        return names[0] if len(names) == 1 else stem(names[0])

    @property
    def words(self) -> str:
        """The change in words: `1 fused softmax kernel (0.81 ms) became 4 (1.88 ms)`, or the name with the change of time."""
        times = [f"{ms or 0:.3g} ms" for ms in (self.base_ms, self.new_ms)]
        if self.is_refused:
            return f"{self._kernels(self.base)} ({times[0]}) became {self._number} ({times[1]})"
        return f"{self.name} {self.change_ms:+.3g} ms"

    @property
    def names(self) -> str:
        """Text for a tooltip: all names in base, then all in new, if both sides fused differently; else the name."""
        sides = ("; ".join(name for name, *_ in side) for side in (self.base, self.new))
        return " -> ".join(sides) if self.is_refused else self.name

    @property
    def _number(self) -> str:
        return "another one" if len(self.base) == len(self.new) == 1 else str(len(self.new))

    def lines(self, base: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the lines of the model's source that the group's kernels come from: by new's details, else by base's."""
        after = source_lines(new, [name for name, *_ in self.new])
        return after or source_lines(base, [name for name, *_ in self.base])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        times = {key: getattr(self, key) for key in ("base_launches", "base_ms", "new_launches", "new_ms")}
        return {"name": self.name, **times}

    @property
    def called(self) -> str:
        """The operation of its longest kernel, `fused softmax`, or the name of a library's kernel."""
        longest = max((*self.base, *self.new), key=lambda kernel: kernel[2])[0]
        operations = _operations(longest)
        if not operations:
            return stem(longest)
        called = next((word for word in _CALLED if word in operations), " ".join(operations.split("_")[:3]))
        return f"fused {called.replace('_', ' ').replace('rsqrt', 'norm').strip()}"

    def _kernels(self, side: Sequence[ListedKernel]) -> str:
        return counted(len(side), f"{self.called} kernel")


@dataclass(frozen=True, slots=True)
class KernelShare:
    """A group's part of a change of device time. `share` of 0.84 is 84 %. The shares of one change add up to 1.

    `lines` are the lines of the model's source that the group's kernels come from.
    """

    name: str
    change_ms: float
    share: float
    what: str
    is_loss: bool
    words: str
    called: str = ""
    lines: tuple[str, ...] = ()

    @property
    def part(self) -> str:
        """The share in words: `84 % of the loss`."""
        return f"{100 * self.share:.0f} % of the {'loss' if self.is_loss else 'gain'}"

    @property
    def text(self) -> str:
        """The part in words: `triton_red_fused_sum_3 +0.21 ms, 84 % of the loss`, the change of its code, and its source."""
        source = f", from {places(self.lines)}" if self.lines else ""
        return f"{self.words}, {self.part}" + (f" ({self.what})" if self.what else "") + source


def explained(
    base: Mapping[str, Any], new: Mapping[str, Any], changed: CodeChanges | None = None
) -> tuple[KernelShare, ...]:
    """Return the groups that explain a change of the device time between two measurements' details, the largest share first.

    The last entry has all other kernels, if they have at least 1 % of the change. Empty where a side has no kernels, their time
    differs by less than 1 %, or no group has a share of at least 10 %.
    """
    groups = compared_kernels(base, new, changed)
    before, after = (sum(getattr(one, side) or 0.0 for one in groups) for side in ("base_ms", "new_ms"))
    total = after - before
    if not groups or abs(total) < _LEAST_CHANGE * max(before, after):
        return ()
    named = sorted((one for one in groups if one.name != REST), key=lambda one: -one.change_ms / total)
    parts = [
        KernelShare(
            *(one.name, one.change_ms, one.change_ms / total, one.what, total > 0, one.words, one.called),
            lines=one.lines(base, new),
        )
        for one in named[:MOST]
        if one.change_ms / total >= LEAST_SHARE
    ]
    rest = total - sum(part.change_ms for part in parts)
    if parts and abs(rest / total) >= _LEAST_CHANGE:
        parts.append(KernelShare(OTHERS, rest, rest / total, "", total > 0, f"{OTHERS} {rest:+.3g} ms"))
    return tuple(parts)


def compared_kernels(
    base: Mapping[str, Any], new: Mapping[str, Any], changed: CodeChanges | None = None
) -> list[KernelGroup]:
    """Return the groups of kernels in both sides' details (see `group_kernels`); empty where a side has no kernels."""
    before, after = (list(listed_kernels(details, "compiled")) for details in (base, new))
    return group_kernels(before, after, changed) if before and after else []


def group_kernels(
    base: Iterable[ListedKernel], new: Iterable[ListedKernel], changed: CodeChanges | None = None
) -> list[KernelGroup]:
    """Return the kernels of two profiles in groups, the largest change of time first; the sum of unlisted kernels comes last.

    Kernels belong together if they have the same text, or the same operations. Where all kernels of some operations are on one
    side only, they join kernels of the other side that share most of these operations. A side lists its 24 longest kernels. A
    kernel that it does not list is assumed to take as long as the shortest listed one, but no longer than on the other side or
    than all unlisted kernels together. If the side has no code for the kernel, it takes no time there.
    """
    # Without code the number in a kernel's name says nothing: kernels that come or go shift it.
    sides = {
        side: [(name if changed else stem(name), launches, ms) for name, launches, ms in kernels]
        for side, kernels in (("base", base), ("new", new))
    }
    whats, joined = _by_code(changed)
    members: dict[Any, dict[str, list[ListedKernel]]] = {}
    for side, kernels in sides.items():
        for kernel in kernels:
            key = joined.get((side, kernel[0])) or _operations(kernel[0]) or stem(kernel[0])
            members.setdefault(key, {"base": [], "new": []})[side].append(kernel)
    groups = _join_refused(members) if all(sides.values()) else list(members.values())
    found = [
        KernelGroup(tuple(group["base"]), tuple(group["new"]), _what(group, whats))
        for group in groups
        if any(group.values())
    ]
    if all(sides.values()):
        found = _with_unlisted(found, {side: _least_listed(kernels) for side, kernels in sides.items()})
    return sorted(found, key=lambda one: (one.name == REST, -abs(one.change_ms), -(one.new_ms or 0.0), one.name))


def _operations(name: str) -> str:
    """Return the operations that a generated kernel was fused from, as its name says; empty for a library's kernel."""
    match = _FUSED.match(name)
    return match[1] if match and not match[1].isdecimal() else ""


def _by_code(changed: CodeChanges | None) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], Any]]:
    """Return the change of the code of each (side, name), and a common key for the names that one text has on both sides."""
    whats: dict[tuple[str, str], str] = {}
    joined: dict[tuple[str, str], Any] = {}
    for pair in changed.pairs if changed else ():
        present = [(side, kernel) for side, kernel in (("base", pair.base), ("new", pair.new)) if kernel]
        keys = [(side, kernel.name[:_NAME]) for side, kernel in present]
        for key in keys:
            whats[key] = pair.what if whats.get(key, pair.what) == pair.what else CHANGED
        if not pair.what and _operations(keys[0][1]) != _operations(keys[-1][1]):
            common = next((joined[key] for key in keys if key in joined), keys[0])
            joined |= dict.fromkeys(keys, common)
    return whats, joined


def _what(group: Mapping[str, Sequence[ListedKernel]], whats: Mapping[tuple[str, str], str]) -> str:
    found = {whats.get((side, name), "") for side, kernels in group.items() for name, *_ in kernels}
    return found.pop() if len(found) == 1 else CHANGED if found - {""} else ""


def _join_refused(members: Mapping[Any, dict[str, list[ListedKernel]]]) -> list[dict[str, list[ListedKernel]]]:
    """Return the groups after joining generated kernels of one side to kernels of the other side that share their operations."""
    parent = {key: key for key in members}

    def root(key: Any) -> Any:
        while parent[key] != key:
            key = parent[key]
        return key

    alone = {
        side: {key: _words(group[side]) for key, group in members.items() if group[side] and not group[other]}
        for side, other in (("base", "new"), ("new", "base"))
    }
    for key, words in (*alone["base"].items(), *alone["new"].items()):
        others = alone["new" if key in alone["base"] else "base"]
        shares = {each: len(words & of) / min(len(words), len(of)) for each, of in others.items() if words and of}
        best = max(shares.values(), default=0.0)
        for each, share in shares.items():
            if share == best and share >= _SHARED:
                parent[root(each)] = root(key)
    joined: dict[Any, dict[str, list[ListedKernel]]] = {}
    for key, group in members.items():
        whole = joined.setdefault(root(key), {"base": [], "new": []})
        for side, kernels in group.items():
            whole[side] += kernels
    return list(joined.values())


def _words(kernels: Iterable[ListedKernel]) -> frozenset[str]:
    return frozenset(word for name, *_ in kernels for word in _operations(name).split("_") if word)


def _with_unlisted(groups: Sequence[KernelGroup], least: Mapping[str, float]) -> list[KernelGroup]:
    """Return the groups with a time for kernels that a side does not list, which is subtracted from the sum of unlisted ones."""
    rest = next((one for one in groups if one.name == REST), None)
    left = {"base": (rest and rest.base_ms) or 0.0, "new": (rest and rest.new_ms) or 0.0}
    found = []
    for one in sorted(groups, key=lambda one: -max(one.base_ms or 0.0, one.new_ms or 0.0)):
        if one is rest:
            continue
        side = "base" if not one.base else "new" if not one.new else ""
        is_there = side and one.what not in (CAME, WENT)
        guess = min(least[side], one.base_ms or one.new_ms or 0.0, left[side]) if is_there else 0.0
        if guess > 0:
            left[side] -= guess
            listed = one.base or one.new
            kernels = ((listed[0][0], 0.0, guess),)
            one = (
                replace(one, base=kernels, unlisted=side)
                if side == "base"
                else replace(one, new=kernels, unlisted=side)
            )
        found.append(one)
    if rest:
        base, new = (
            tuple((name, launches, left[side]) for name, launches, _ in kernels)
            for side, kernels in (("base", rest.base), ("new", rest.new))
        )
        found.append(KernelGroup(base, new))
    return found


def _least_listed(kernels: Sequence[ListedKernel]) -> float:
    """Return the least time that is listed, if some kernels are not listed; else 0."""
    times = {name: ms for name, _, ms in kernels}
    return min((ms for name, ms in times.items() if name != REST), default=0.0) if REST in times else 0.0


def _total(kernels: Sequence[ListedKernel], at: int) -> float | None:
    return sum(float(kernel[at]) for kernel in kernels) if kernels else None

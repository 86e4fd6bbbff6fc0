"""Differences of two sides besides their numbers: environments, testbeds, evidence and generated code.

Kernels are matched by their text first, then by their names without the number at the end. No query lives here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from analysis.compare.cell_comparison import CellComparison
from collector.code import NAME_OF_SOURCE, Code, Kernel
from collector.metrics import METRICS
from collector.vocabulary import PYTORCH_CHECK, canonical_json
from db.nights import RunInfo
from db.queries.side_rows import CellState
from db.queries.sides import Side
from db.store_errors import counted

#: Most cells that a note names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """A key of the fingerprint whose values differ between the sides, with all values that each side has."""

    key: str
    base: tuple[str, ...]
    new: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def environment_differences(
    base: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]
) -> tuple[EnvironmentDifference, ...]:
    """Return the keys (nested ones dotted) whose values differ between the fingerprints of two sides, sorted by key.

    A key that a side lacks has no value there. Empty if a side has no fingerprints.
    """
    values = [_values(side) for side in (base, new)]
    if not all(values):
        return ()
    keys = sorted(values[0].keys() | values[1].keys())
    both = ((key, values[0].get(key, set()), values[1].get(key, set())) for key in keys)
    return tuple(EnvironmentDifference(key, tuple(sorted(a)), tuple(sorted(b))) for key, a, b in both if a != b)


def side_notes(base: Side, new: Side, cells: Sequence[CellComparison], *, across: bool) -> list[str]:
    """Return the facts that a reader of a comparison needs, a sentence each. `across`: two configs are compared."""
    notes = _testbed_notes(base, new, cells) + run_notes(base, new)
    coded = [one.code_changed for one in cells if one.code_changed is not None]
    if coded:
        notes.append(f"generated code: {coded.count(False)} of {len(coded)} cells have the same on both sides")
    if changed := [one for one in cells if one.model_changed]:
        models = ", ".join(sorted({one.cell.model for one in changed}))
        notes.append(
            f"{len(changed)} of {len(cells)} cells are of a model that itself changed ({models}): they tell nothing of torch"
        )
    notes += carried_notes([one.base.same_code_as for one in cells], " of base")
    notes += carried_notes([one.new.same_code_as for one in cells], " of new")
    notes += pytorch_note([one.new for one in cells], " of new")
    if across:
        return notes
    if set(base.keys) == set(new.keys):
        notes.append("base and new are the same runs")
    if not any(one.base.is_expected and one.new.is_expected for one in cells):
        notes.append("no cell is expected on both sides, there is nothing to compare")
    if lost := sum(one.base.passes and one.new.is_not_applicable for one in cells):
        notes.append(f"{lost} cells that pass in base are unavailable, skipped or not checked in new")
    return notes


def carried_notes(nights: Sequence[str | None], of_side: str) -> list[str]:
    """Return a sentence on the cells that were not timed again, since their code equals an earlier night's, which counts."""
    counts = Counter(night for night in nights if night)
    if not counts:
        return []
    of_nights = ", ".join(f"{night} ({count})" for night, count in counts.items())
    return [f"{counts.total()} of {len(nights)} cells{of_side} were not timed again: same code as {of_nights}"]


def _testbed_notes(base: Side, new: Side, cells: Sequence[CellComparison]) -> list[str]:
    """Return a line for each device type with cells that were measured on another testbed in new than in base."""
    known = {run.testbed_id: run.testbed for run in (*base.runs, *new.runs)}
    by_device: dict[str, list[CellComparison]] = {}
    for one in cells:
        if one.testbed_changed is not None:
            by_device.setdefault(one.cell.device, []).append(one)
    notes = []
    for device, rows in sorted(by_device.items()):
        pairs = Counter((str(one.base.testbed_id), str(one.new.testbed_id)) for one in rows if one.testbed_changed)
        if pairs:
            notes.append(
                f"{pairs.total()} of {len(rows)} {device} cells measured on both sides were measured on different testbeds, "
                f"where latencies do not compare: {_spell_differences(pairs, known)}"
            )
    return notes


def pytorch_note(states: Sequence[CellState], of_side: str) -> list[str]:
    """Return a sentence on PyTorch's own accuracy check of one side's cells, which names cells that it judges otherwise."""
    known = [state for state in states if state.passes_pytorch is not None and not state.is_not_applicable]
    if not any(PYTORCH_CHECK in state.values for state in known):
        return []
    other = [
        f"{state.cell} ({'pass' if state.passes_pytorch else 'fail'} there, {state.status} here)"
        for state in known
        if state.is_judged_otherwise
    ]
    more = [f"{len(other) - _NAMED} more"] if len(other) > _NAMED else []
    otherwise = f"; it judges otherwise: {', '.join([*other[:_NAMED], *more])}" if other else ""
    passing = sum(state.passes_pytorch is True for state in known)
    return [f"PyTorch's own accuracy check passes {passing} of {len(known)} cells{of_side}{otherwise}"]


def run_notes(*sides: Side) -> list[str]:
    """Return a line for each night with runs that have no end record: cells without a row may still be coming."""
    runs = {run.run_id: run for side in sides for run in side.runs}
    nights: dict[str, list[RunInfo]] = {}
    for run in runs.values():
        nights.setdefault(run.night, []).append(run)
    notes = []
    for night, of_night in nights.items():
        still_open = [run.run_id for run in of_night if run.finished_at is None]
        if len(still_open) == 1:
            notes.append(f"run {still_open[0]} has no end record: it was cut short or is still going")
        elif still_open:
            which = f"{len(still_open)} of {len(of_night)} runs of night {night} have no end record"
            notes.append(f"{which}: they were cut short or are still going")
    return notes


def _values(fingerprints: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    by_key: dict[str, set[str]] = {}
    for fingerprint in fingerprints:
        torch = f"torch {str(fingerprint.get('torch', '')).partition('+')[0]}"
        for key, value in _flat(fingerprint):
            text = value if isinstance(value, str) else canonical_json(value)
            by_key.setdefault(key, set()).add(_source_words(text, torch) if key == NAME_OF_SOURCE else text)
    return by_key


def _source_words(text: str, torch: str) -> str:
    """Return an overlay's source in words: `torch 2.11.0, unpatched` or `8 files of da9bfb0c0e over torch 2.11.0`."""
    match = re.fullmatch(r"(\d+) files of (\S+) over (\w+)(.*)", text)
    if not match:
        return text
    files = counted(int(match[1]), "file")
    return f"{torch}, unpatched" if match[1] == "0" else f"{files} of {match[2]} over {torch}{match[4]}"


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _spell_differences(pairs: Mapping[tuple[str, str], int], known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the differences between testbeds, key by key: `gpu_index in 12 cells (0 in base, 1 and 2 in new), ...`."""
    counts: Counter[str] = Counter()
    values: dict[str, tuple[set[str], set[str]]] = {}
    for (base, new), cells in pairs.items():
        for key in known[base].keys() | known[new].keys():
            both = known[base].get(key), known[new].get(key)
            if both[0] != both[1]:
                counts[key] += cells
                for seen, value in zip(values.setdefault(key, (set(), set())), both, strict=True):
                    seen.add("nothing" if value is None else str(value))
    words = []
    for key in sorted(counts):
        base_values, new_values = (" and ".join(sorted(side)) for side in values[key])
        each = (
            f"{base_values} in base, {new_values} in new"
            if base_values != new_values
            else f"each on another of {new_values}"
        )
        words.append(f"{key} in {counts[key]} cell{'s' * (counts[key] > 1)} ({each})")
    return ", ".join(words)


#: Inductor numbers its kernels within a program, so that one more fusion renames all kernels after it.
_NUMBER = re.compile(r"^((?:triton|cpp)_.*?)_\d+$")


#: Metrics that count what the compiler made, with their titles: every difference is listed.
COUNTS = {metric.name: metric.title for metric in METRICS.values() if metric.is_count}
#: Keys of the reasons that the collector keeps in the details, and the kind of event that each key explains.
REASONS = {
    "graph_break_reasons": "graph break",
    "recompile_reasons": "recompile",
    "cudagraph_skip_reasons": "cudagraph skip",
}
#: The collector's name for the kernels that it does not list one by one.
REST = "(other)"


#: Key of the details for lines of the model's source by kernel (`collector.measure.generated_code`); most that a sentence names.
KERNEL_LINES, _PLACES = "kernel_lines", 2


#: A kernel's name, launches and milliseconds per call.
ListedKernel = tuple[str, float, float]


def listed_kernels(details: Mapping[str, Any], kind: str) -> Iterator[ListedKernel]:
    """Yield name, launches and milliseconds per call of the kernels of `kind`, as the profiler lists them.

    `kind` is "compiled", "eager", or "outside": the compiled kernels that no cudagraph launched.
    """
    entries = details.get(f"{kind}_kernels")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, list | tuple) and len(entry) == 3:
            yield str(entry[0]), float(entry[1]), float(entry[2])


@lru_cache(1 << 16)  # a report asks for each kernel of a program as often as it has kernels that changed
def stem(name: str) -> str:
    """Return the name of a kernel without the number that Inductor gives it within a program; a library's name as it is."""
    return match[1] if (match := _NUMBER.match(name)) else name


def source_lines(details: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of the model's source that kernels were generated from, `package/module.py:12  code`.

    Names may be without their numbers. Empty where nothing is recorded, as for a library's kernel.
    """
    recorded = details.get(KERNEL_LINES)
    parts = (recorded.get("lines"), recorded.get("kernels")) if isinstance(recorded, Mapping) else (None, None)
    lines, kernels = parts
    if not isinstance(lines, list) or not isinstance(kernels, Mapping):
        return ()
    wanted = set(names)
    of_names = (numbers for name, numbers in kernels.items() if name in wanted or stem(name) in wanted)
    numbers = (number for of_name in of_names if isinstance(of_name, list) for number in of_name)
    known = (number for number in numbers if isinstance(number, int) and 0 <= number < len(lines))
    return tuple(dict.fromkeys(str(lines[number]) for number in known))


def places(lines: Sequence[str]) -> str:
    """Return the places of lines of source without the code: `bert/modeling_bert.py:12, bert/modeling_bert.py:40 and 2 more`."""
    more = f" and {len(lines) - _PLACES} more" if len(lines) > _PLACES else ""
    return ", ".join(line.partition("  ")[0] for line in lines[:_PLACES]) + more


def is_float32(name: str) -> bool:
    """Return whether a library's kernel computes on float32, by its name; the names of generated kernels do not show it.

    cuBLAS and cuDNN write the types of both operands (`gemm_f32f32_...`, `sgemm`), ATen writes the type of the first argument of
    a template (`CUDAFunctor_add<float>`).
    """
    return re.search(r"sgemm|_f32f32_|<float[,>]", name) is not None


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[EnvironmentDifference, ...]:
    """Return the keys whose values differ between two records; empty where a side's record is lost."""
    return environment_differences([base], [new])


def reasons(details: Mapping[str, Any], key: str) -> list[str]:
    """Return the recorded reasons as texts; empty where there are none."""
    recorded = details.get(key)
    if isinstance(recorded, Mapping):
        return [f"{name}: {value}" for name, value in recorded.items()]
    if isinstance(recorded, Sequence) and not isinstance(recorded, str):
        return [str(value) for value in recorded]
    return [str(recorded)] if recorded else []


@dataclass(frozen=True, slots=True)
class ReasonDifference:
    """A reason of a graph break, recompile or cudagraph skip (`what`) that only the side `before` or `after` has."""

    what: str
    side: str
    text: str


def reason_differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[ReasonDifference]:
    """Return the reasons in the details of one side only, each once: kind by kind, new ones first."""
    differing = []
    for key, what in REASONS.items():
        before, after = (dict.fromkeys(reasons(details, key)) for details in (base, new))
        differing += [ReasonDifference(what, "after", text) for text in after if text not in before]
        differing += [ReasonDifference(what, "before", text) for text in before if text not in after]
    return differing


def count_differences(base: Mapping[str, float], new: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return the counts that both sides have and that differ, by name."""
    both = {name: (base[name], new[name]) for name in COUNTS if name in base and name in new}
    return {name: values for name, values in both.items() if values[0] != values[1]}


SAME = "same code"
WRAPPER = "wrapper changed"
#: The words for changed code whose text the database does not have.
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
        """The operations that the kernel is made of, as Inductor says; may be empty."""
        kernel = self.new or self.base
        return kernel.source if kernel else ""

    @property
    def what(self) -> str:
        """The change of the kernel: `added`, `removed` or `changed`; empty where the text is the same."""
        if self.base is None or self.new is None:
            return CAME if self.new else WENT
        return "" if self.base.text_id == self.new.text_id else CHANGED


@dataclass(frozen=True, slots=True)
class CodeChanges:
    """Changes of the generated code. `pairs` has all kernels: the new side's in their order, then the removed ones."""

    same: bool
    pairs: tuple[KernelPair, ...]

    @property
    def kernels(self) -> tuple[KernelPair, ...]:
        """The kernels that were added, removed or changed."""
        return tuple(pair for pair in self.pairs if pair.what)

    @property
    def words(self) -> str:
        """The changes in words: `same code`, `3 kernels changed` (added and removed ones included) or `wrapper changed`."""
        if self.same:
            return SAME
        return f"{counted(len(self.kernels), 'kernel')} changed" if self.kernels else WRAPPER


def changes(base: Code, new: Code) -> CodeChanges:
    """Compare the generated code of base with the generated code of new. A kernel that several graphs share counts once."""
    before, after = _kernels(base), _kernels(new)
    same_text = {kernel.text_id: kernel for kernel in before}
    left = {kernel.text_id for kernel in before} - {kernel.text_id for kernel in after}
    by_stem: dict[str, list[Kernel]] = {}
    for kernel in before:
        if kernel.text_id in left:
            by_stem.setdefault(stem(kernel.name), []).append(kernel)
    others = Counter(stem(kernel.name) for kernel in after if kernel.text_id not in same_text)
    # Where one kernel became several, it is paired with none of them.
    partners = {name: iter(kernels) for name, kernels in by_stem.items() if len(kernels) == others[name]}
    pairs = []
    for kernel in after:
        partner = same_text.get(kernel.text_id) or next(partners.get(stem(kernel.name), iter(())), None)
        pairs.append(KernelPair(partner, kernel))
    gone = [KernelPair(kernel, None) for name, of_name in by_stem.items() if name not in partners for kernel in of_name]
    return CodeChanges(base.code_id == new.code_id, (*pairs, *gone))


def _kernels(code: Code) -> list[Kernel]:
    """Return the kernels of all graphs, each text once."""
    first: dict[str, Kernel] = {}
    for kernel in code.kernels:
        first.setdefault(kernel.text_id, kernel)
    return list(first.values())


def winners(details: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration that autotuning chose, by the name of the kernel or operation; the last one counts."""
    entries = details.get("autotuned")
    rows = entries if isinstance(entries, list) else []
    return {str(row[0]): str(row[2]) for row in rows if isinstance(row, list | tuple) and len(row) >= 3}


@dataclass(frozen=True, slots=True)
class KernelEvidence:
    """A kernel with its device time (ms per call) and the configuration that won its autotuning; None where not known.

    `lines` are the lines of the model's source that it was generated from: new's, else base's.
    """

    pair: KernelPair
    base_ms: float | None
    new_ms: float | None
    base_winner: str | None
    new_winner: str | None
    lines: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The change of the kernel; `tuned differently` where only the chosen configuration differs."""
        return self.pair.what or ("tuned differently" if self.is_tuned_differently else "")

    @property
    def is_tuned_differently(self) -> bool:
        """Return whether both sides tuned the kernel and chose different configurations."""
        return None not in (self.base_winner, self.new_winner) and self.base_winner != self.new_winner


def kernel_evidence(changed: CodeChanges, base: Mapping[str, Any], new: Mapping[str, Any]) -> list[KernelEvidence]:
    """Return the kernels that were added, removed, changed or tuned differently, with times and configurations of both sides.

    The largest change of time comes first. The profiler adds up kernels of one name, which several graphs may have.
    """
    times = [{name: ms for name, _, ms in listed_kernels(details, "compiled")} for details in (base, new)]
    chosen = [winners(details) for details in (base, new)]
    rows = []
    for pair in changed.pairs:
        base_name, new_name = (kernel.name[:_NAME] if kernel else "" for kernel in (pair.base, pair.new))
        both_times = times[0].get(base_name), times[1].get(new_name)
        both_winners = chosen[0].get(base_name), chosen[1].get(new_name)
        lines = source_lines(new, [new_name]) or source_lines(base, [base_name])
        rows.append(KernelEvidence(pair, *both_times, *both_winners, lines))
    return sorted((row for row in rows if row.what), key=lambda row: -abs((row.new_ms or 0.0) - (row.base_ms or 0.0)))

"""Decisions that rounding makes: near ties between experts, between largest values, or beside a threshold.

A mixture of experts sends a token to the best few of its experts. Where two are nearly equally good, eager in bfloat16 and
eager in float32 choose different ones, and the outputs of that token have little in common. A right compiled program chooses
again otherwise, so that no comparison with one run of eager is fair. Which outputs hang on such a decision is eager's
property, not the compiled program's: eager is run with weights that are moved by up to two units in the last place, which is
about what rounding does. What jumps from run to run is not firm. All else is compared as everywhere, and what is not firm must
at least be no further off than eager's own jumps, and like some run of eager as often as these are like each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

import torch
from torch import nn

from collector.correctness.comparing import group_of
from collector.correctness.norms import Asking, is_float, numbers, settle
from collector.correctness.pytorch_accuracy import Tolerance
from collector.correctness.rows import CHUNK, JUMP, JUMP_OF_FEW, Rows, on_host, row_errors, rows_of, without_infinities
from collector.correctness.snapshot import GRADIENT, Snapshot, widened

#: How far the weights of each run are moved at most, in units of the last place. In bfloat16 half a unit makes errors 1.15
#: times as large as eager's own, a whole one 2 times, two units 3 times. The larger ones find ties that rounding to a coarse
#: grid always decides in one way: with half and whole units alone one right program of 20 failed, with these none of 100.
NUDGES = (0.5, 1.0, 2.0) * 8
#: Runs after which outputs may agree: what jumps in fewer runs is a part of what jumps in all. More are made only where outputs
#: do not agree by these. 60 wrong and right programs, made from a training step of ViTTiny, got the same answer from both.
FEW = 6
#: How many runs there are in a row until one is nudged as far again.
_KINDS = 3
#: The share of rows that must be left to compare, else nothing is known of the outputs.
LEAST_SHARE = 0.5
#: How far the usual error of one row may be above that of all rows before it is taken for a jump in most runs.
_UNEVEN = 3.0
#: Times eager's largest jump that a jump of the compiled program may be.
_LARGER = 3.0
#: How often it may differ from all of eager's runs: times as often as one of these from the others, and so many rows, or such
#: a share of those that are not firm, more.
_MORE, _ROWS, _SHARE = 2, 2, 0.1
#: The ratio of errors of two runs, nudged as far, from which a whole tensor is not firm.
_SPREAD = 2.0
#: The error of eager, as a share of the size, from which the reference is not used, and the one that turns a tensor so far that
#: the cosine is below PyTorch's bound of 0.99.
_UNUSABLE, _OTHER = 0.5, 0.14
#: The same of a gradient without a usable reference, half as much: it is compared all the same, by its error.
_NOISY = 0.07
#: Elements of a tensor whose error is steady from run to run.
_ENOUGH = 64
#: Bytes of the host's memory for outputs of all runs.
_KEPT_BYTES = 1 << 30

#: Makes the outputs of the eager run of this number.
NudgedRun = Callable[[int], Snapshot]


def nudge(model: nn.Module, start: nn.Module, number: int, computes_in: torch.dtype | None) -> None:
    """Give a model the weights of another one, each moved by up to `NUDGES[number]` units in the last place.

    Only matrices and larger ones: all that is computed from them moves with them, while a frequency or a scale may count more
    than rounding does. `computes_in` is autocast's dtype.
    """
    with torch.no_grad():
        for index, (weight, own) in enumerate(zip(model.parameters(), start.parameters(), strict=True)):
            weight.copy_(own)
            if weight.dim() < 2 or not weight.is_floating_point() or weight.element_size() < 2:
                continue
            unit = NUDGES[number] * torch.finfo(computes_in or weight.dtype).eps
            generator = torch.Generator(weight.device).manual_seed(number * 1_000_003 + index)
            moves = torch.empty(weight.shape, dtype=torch.float32, device=weight.device)
            moves.uniform_(1 - unit, 1 + unit, generator=generator)
            weight.copy_(moves.mul_(own) if own.dtype is not torch.float64 else moves.double().mul_(own))


@dataclass(slots=True)
class Ties:
    """What is left to compare where eager's outputs jump.

    The snapshots hold the firm rows of each output that did not agree, and all else as it was. `problem` says why the rest
    cannot be near ties. `told` has for each output how many rows are not compared, `share` the smallest share of rows that are
    compared in the outputs, the loss, the gradients, or the state.
    """

    eager: Snapshot
    compiled: Snapshot
    reference: Snapshot | None
    problem: str | None = None
    told: dict[str, str] = field(default_factory=dict)
    share: float = 1.0


@dataclass(slots=True)
class _Leaf(Rows):
    """One output: the errors of its rows in each run, and which of them jump."""

    jumps: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    usual: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    spread: float = 1.0
    #: Whether nothing more precise than eager can judge it.
    is_unknown: bool = False
    #: Whether the gentlest runs already make something else of it.
    is_noise: bool = False

    def jumping_rows(self, value: torch.Tensor) -> torch.Tensor:
        """Return the rows that jump, on the host."""
        return widened(value).reshape(-1, self.width)[self.jumps.to(value.device)].cpu()

    def firm(self, value: torch.Tensor) -> torch.Tensor:
        """Return the rows that do not jump; a whole tensor as it is."""
        if not bool(self.jumps.any()):
            return value
        rows = widened(value).reshape(-1, self.width)[~self.jumps.to(value.device)].to(value.dtype)
        return rows if self.width > 1 else rows.reshape(-1)

    def decide(self, is_gradient: bool, own_size: float) -> None:
        """Find the rows that jump from run to run; `own_size` is the root mean square of the base."""
        errors = torch.stack(self.errors) / self.scale
        if not is_float(self.base):
            self.jumps, self.usual = errors.amax(0) > 0, torch.zeros(errors.shape[1])
            return
        self.jumps = torch.zeros(errors.shape[1], dtype=torch.bool)
        self.spread = 1.0
        groups = [errors[1 + first :: _KINDS] for first in range(_KINDS)]
        for number, group in enumerate(groups):
            own = group.quantile(0.25, 0)
            live = own > 0
            of_all = float(own[live].median()) if bool(live.any()) else 0.0
            usual = own.clamp(max=_UNEVEN * of_all)
            self.jumps |= group.amax(0) > (JUMP if self.wide else JUMP_OF_FEW) * usual
            if number == 0:
                self.jumps |= errors[0] > (JUMP if self.wide else JUMP_OF_FEW) * usual
                self.usual = usual.clamp(min=of_all) * self.scale
        of_runs = torch.stack(self.errors).square().mean(1).sqrt()
        self.is_unknown = self.is_eager or float(of_runs[0]) > _UNUSABLE * own_size
        noise = _NOISY if is_gradient and self.is_eager else _OTHER
        self.is_noise = self.is_unknown and float(of_runs[1::_KINDS].median()) > noise * own_size
        for group in groups:
            firm = group[:, ~self.jumps].square().sum(1).sqrt()
            least = float(firm.min())
            if self.base.numel() >= _ENOUGH and least > 0:
                self.spread = max(self.spread, float(firm.max()) / least)

    def yardstick(self) -> int:
        """Return the number of the run whose firm rows are furthest off, of eager as it is and the gentlest runs."""
        if not is_float(self.base):
            return 0
        firm = torch.stack(self.errors)[:, ~self.jumps].square().sum(1)
        gentle = [0, *range(1, len(firm), _KINDS)]
        furthest: int = max(gentle, key=lambda number: float(firm[number]))
        return furthest

    def live(self) -> int:
        """Count the rows that any rounding reaches: of floating ones those with an error in some run."""
        if not is_float(self.base):
            return int(self.jumps.numel())
        return max(1, int((torch.stack(self.errors).amax(0) > 0).sum()))


def part_ties(
    eager: Snapshot,
    compiled: Snapshot,
    reference: Snapshot | None,
    wrong: tuple[str, ...],
    tolerance: Tolerance,
    run: NudgedRun,
    nudged: Nudged | None = None,
) -> Ties | None:
    """Set aside what is not firm in outputs that do not agree; None where all of eager's outputs are firm.

    `wrong` are the paths of the outputs that do not agree. `nudged` is what is known of eager under other weights already;
    without it all runs are made.
    """
    nudged = nudged or Nudged.of(eager, reference, wrong, run, len(NUDGES))
    known = {path: leaf for path, leaf in nudged.leaves.items() if eager.get(path) is nudged.eager.get(path)}
    if not any(
        leaf.other_shape or leaf.is_noise or bool(leaf.jumps.any()) or leaf.spread > _SPREAD for leaf in known.values()
    ):
        return None
    return _Parting(eager, compiled, reference, known, tolerance, nudged.kept, nudged.runs).parted(wrong, run)


@dataclass(slots=True)
class Nudged:
    """What eager makes of its outputs under other weights, for the outputs `eager`, in the first `runs` of `NUDGES`.

    `kept` has some outputs of all runs on the host, eager's first.
    """

    eager: Snapshot
    leaves: dict[str, _Leaf]
    kept: dict[str, list[torch.Tensor]]
    runs: int = 0

    @classmethod
    def of(cls, eager: Snapshot, reference: Snapshot | None, wrong: Sequence[str], run: NudgedRun, runs: int) -> Nudged:
        """Run eager under other weights so often; the outputs `wrong` are kept as far as they are small."""
        found = cls(eager, rows_of(eager, reference, _Leaf), {path: [] for path in _small(eager, wrong)})
        found._note(eager)
        found.run_more(run, runs)
        return found

    def run_more(self, run: NudgedRun, runs: int) -> None:
        """Run eager under further weights, until there were so many runs."""
        while self.runs < runs:
            self._note(run(self.runs))
            self.runs += 1
        steady = {path: leaf for path, leaf in self.leaves.items() if not leaf.other_shape}
        sizes = settle(_asking_size(leaf) for leaf in steady.values())
        for (path, leaf), size in zip(steady.items(), sizes, strict=True):
            leaf.decide(group_of(path) == GRADIENT, size)

    def knows(self, eager: Snapshot, paths: Sequence[str]) -> bool:
        """Return whether outputs are those for which eager was run."""
        return all(path in self.leaves and eager.get(path) is self.eager.get(path) for path in paths)

    def _note(self, made: Snapshot) -> None:
        """Give each output its errors in a run; those that some run does not have are taken out."""
        errors: dict[str, torch.Tensor] = {}
        for path, leaf in list(self.leaves.items()):
            value = made.get(path)
            if not isinstance(value, torch.Tensor):
                del self.leaves[path]
                self.kept.pop(path, None)
                continue
            if value.shape == leaf.base.shape:
                errors[path] = leaf.errors_of(value)
            else:
                leaf.other_shape = True
            if path in self.kept:
                self.kept[path].append(value.cpu())
        for path, of_rows in zip(errors, on_host(list(errors.values())), strict=True):
            self.leaves[path].errors.append(of_rows)


def _small(eager: Snapshot, paths: Sequence[str]) -> list[str]:
    """Return the paths of the outputs, the smallest first, of which all runs have room together."""
    sizes = sorted((value.nbytes, path) for path in paths if isinstance(value := eager.get(path), torch.Tensor))
    totals = accumulate(size * (len(NUDGES) + 1) for size, _ in sizes)
    return [path for (_, path), total in zip(sizes, totals, strict=True) if total <= _KEPT_BYTES]


def _asking_size(leaf: _Leaf) -> Asking[float]:
    """Compute the root mean square of a base; 0 for integers, which have none."""
    if not is_float(leaf.base):
        return 0.0
    (size,) = yield (without_infinities(widened(leaf.base)).square().mean().sqrt(),)
    return size


@dataclass(slots=True)
class _Parting:
    eager: Snapshot
    compiled: Snapshot
    reference: Snapshot | None
    leaves: dict[str, _Leaf]
    tolerance: Tolerance
    kept: Mapping[str, Sequence[torch.Tensor]]
    runs: int

    def parted(self, wrong: tuple[str, ...], run: NudgedRun) -> Ties | None:
        """Set the rows aside, and judge them by all runs; None where an output differs in more than its values."""
        ties = Ties(dict(self.eager), dict(self.compiled), dict(self.reference) if self.reference else None)
        of_other_shapes = [path for path in wrong if path in self.leaves and self.leaves[path].other_shape]
        of_one_shape = [path for path in wrong if path not in of_other_shapes]
        if not all(self._has_form_of_eager(path) for path in of_one_shape):
            return None
        for path in of_other_shapes:
            ties.told[path] = "all, since its shape differs between runs of eager"
            self._drop(ties, path)
        # A gradient of noise that has a reference was compared by it as far as it can be (`collector.correctness.comparing`).
        noise = [
            path
            for path in of_one_shape
            if self.leaves[path].is_noise and (group_of(path) != GRADIENT or self.leaves[path].is_eager)
        ]
        for path in noise:
            self._judge_noise(ties, path)
        firm = [path for path in of_one_shape if path not in noise]
        unknown = [path for path in noise if group_of(path) != GRADIENT]
        lost = dict.fromkeys((*of_other_shapes, *unknown), 1.0) | self._judged(ties, firm, run)
        for group in {group_of(path) for path in self.leaves}:
            shares = [1 - lost.get(path, 0.0) for path in self.leaves if group_of(path) == group]
            ties.share = min(ties.share, sum(shares) / len(shares))
        return ties

    def _has_form_of_eager(self, path: str) -> bool:
        eager, made = self.eager[path], self.compiled[path]
        return (
            path in self.leaves
            and isinstance(eager, torch.Tensor)
            and isinstance(made, torch.Tensor)
            and (made.dtype, made.shape) == (eager.dtype, eager.shape)
        )

    def _judge_noise(self, ties: Ties, path: str) -> None:
        """Set an output aside that is another one in each run; it may be no further off, and no larger, than those are."""
        leaf = self.leaves[path]
        made = float(leaf.errors_of(self._made(path)).cpu().square().mean().sqrt())
        most = float(torch.stack(leaf.errors).square().mean(1).sqrt().max())
        if made > _LARGER * most:
            ties.problem = f"{path}: RMSE {made:.3g}, that of eager under other weights {most:.3g} at most"
        ties.told[path] = "all, since eager is another one in each run"
        self._drop(ties, path)

    def _judged(self, ties: Ties, paths: list[str], run: NudgedRun) -> dict[str, float]:
        """Return which share of each output is not compared."""
        rows: dict[str, list[torch.Tensor]] = {path: [] for path in paths}
        yardsticks = {path: self.leaves[path].yardstick() for path in paths}
        worst: Snapshot = {}
        for number, path, value in self._of_all_runs(paths, run):
            if isinstance(value, torch.Tensor):
                rows[path].append(self.leaves[path].jumping_rows(value))
                worst |= {path: value.to(self._made(path).device)} if number == yardsticks[path] else {}
        lost = {}
        for path in paths:
            leaf = self.leaves[path]
            unlike = self._unmatched(ties, path, rows[path])
            lost[path] = unlike / leaf.live()
            if bool(leaf.jumps.any()):
                ties.told[path] = (
                    f"{int(leaf.jumps.sum())} of {leaf.jumps.numel()} rows, {unlike} unlike every eager run"
                )
            elif leaf.spread > _SPREAD:
                ties.told[path] = f"eager's own error varies by {leaf.spread:.1f}"
            self._keep_firm(ties, path, worst[path])
        return lost

    def _of_all_runs(self, paths: Sequence[str], run: NudgedRun) -> Iterator[tuple[int, str, object]]:
        """Yield the number of each run, a path and what it made there; eager runs again for what was not kept."""
        kept = [path for path in paths if path in self.kept]
        yield from ((number, path, value) for path in kept for number, value in enumerate(self.kept[path]))
        if others := [path for path in paths if path not in self.kept]:
            # One after the other: the gradients of all runs together would be many times what a training step takes.
            for number, snapshot in enumerate(chain((self.eager,), (run(number) for number in range(self.runs)))):
                yield from ((number, path, snapshot[path]) for path in others)

    def _unmatched(self, ties: Ties, path: str, runs: list[torch.Tensor]) -> int:
        """Count the rows of the compiled program that are like none of eager's; notes what no near tie explains."""
        leaf = self.leaves[path]
        if not bool(leaf.jumps.any()):
            return 0
        base, made = leaf.jumping_rows(leaf.base), leaf.jumping_rows(self._made(path))
        near = leaf.usual[leaf.jumps]
        if is_float(leaf.base):
            size = float(without_infinities(base).square().mean().sqrt())
            near = self.tolerance.multiplier_for((1000,)) * near + self.tolerance.tol / 10 * size
        apart = _apart([base, *runs], made, near, leaf.base.device)
        count, allowed = apart.made, _MORE * max(apart.runs) + max(_ROWS, _SHARE * len(near))
        if count > allowed:
            unlike_all = f"{count} of {len(near)} rows of near ties are unlike every eager run"
            ties.problem = f"{path}: {unlike_all}, of an eager run at most {max(apart.runs)}"
        if is_float(leaf.base) and apart.made_worst > _LARGER * apart.runs_worst + float(near.max()):
            furthest = (
                f"an error of {apart.made_worst:.3g} in a row of a near tie, eager's largest {apart.runs_worst:.3g}"
            )
            ties.problem = f"{path}: {furthest}"
        return count

    def _made(self, path: str) -> torch.Tensor:
        made = self.compiled[path]
        return made if isinstance(made, torch.Tensor) else torch.empty(0)

    def _keep_firm(self, ties: Ties, path: str, worst: object) -> None:
        """Leave the firm rows of an output; where a reference judges, eager's are those of the run that is furthest from it."""
        leaf = self.leaves[path]
        eager = self.eager[path]
        if bool(leaf.jumps.all()) or not isinstance(worst, torch.Tensor) or not isinstance(eager, torch.Tensor):
            self._drop(ties, path)
            return
        # A row that jumps moves the others a little, through attention or a norm: by how much, eager's runs show. Where eager
        # itself is what the program is compared with, the run that is furthest off would be the wrong one.
        ties.eager[path] = leaf.firm(eager if leaf.is_unknown else worst)
        ties.compiled[path] = leaf.firm(self._made(path))
        if ties.reference is not None and isinstance(exact := ties.reference.get(path), torch.Tensor):
            ties.reference[path] = leaf.firm(exact)

    @staticmethod
    def _drop(ties: Ties, path: str) -> None:
        for snapshot in (ties.eager, ties.compiled, ties.reference or {}):
            snapshot.pop(path, None)


@dataclass(frozen=True, slots=True)
class _Apart:
    """How far rows are apart.

    `runs` has for each run how many of its rows are like no other run's, `made` how many of the compiled program's are like no
    run's; `runs_worst` and `made_worst` are the largest errors from the first run.
    """

    runs: list[int]
    made: int
    runs_worst: float
    made_worst: float


def _apart(runs: list[torch.Tensor], made: torch.Tensor, near: torch.Tensor, device: torch.device) -> _Apart:
    """Compare rows of `[rows, elements]`, in each run and of the compiled program, on a device.

    Rows are alike that differ by at most `near`, `[rows]`. A run is compared with all others at once: pair by pair that
    was a third of the time of checks on a GPU (docs/results.md).
    """
    step = max(1, CHUNK // (len(runs) * max(1, made.shape[1])))
    counts = torch.zeros(len(runs) + 1, dtype=torch.int64, device=device)
    worst = torch.zeros(2, dtype=torch.float64, device=device)
    for first in range(0, len(made), step):
        rows = slice(first, first + step)
        together = torch.stack([run[rows].to(device) for run in runs])
        made_rows, limit = made[rows].to(device), near[rows].to(device)
        for number, own in enumerate(together):
            errors = row_errors(own, together)
            if number == 0:
                worst[0] = torch.maximum(worst[0], errors[1:].max())
            errors[number] = math.inf
            counts[number] += (errors.amin(0) > limit).sum()
        counts[-1] += (row_errors(made_rows, together).amin(0) > limit).sum()
        worst[1] = torch.maximum(worst[1], row_errors(made_rows, together[0]).max())
    *of_runs, of_made, runs_worst, made_worst = numbers(counts, worst)
    return _Apart([int(count) for count in of_runs], int(of_made), runs_worst, made_worst)

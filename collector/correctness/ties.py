"""Near ties, which rounding decides: between experts, between largest values, or beside a threshold.

A mixture of experts sends a token to the best few of its experts. If two are nearly equally good, eager in bfloat16 and eager in
float32 choose different ones, and the outputs of that token have little in common. A right compiled program may choose
differently again, so that no comparison with one run of eager is fair. Eager alone determines which outputs hang on such a
decision: it is run with weights that are moved by up to two units in the last place, which is about the effect of rounding. A
row that jumps from run to run is not firm. Firm rows are compared as usual. Other rows must be no further off than eager's own
jumps, and equal some run of eager about as often as eager's runs equal each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

import torch
from torch import nn

from collector.correctness.comparing import NOISY_LENGTH, group_of
from collector.correctness.norms import Asking, is_float, numbers, on_host, settle
from collector.correctness.pytorch_accuracy import Tolerance
from collector.correctness.rows import CHUNK, JUMP, JUMP_OF_FEW, Rows, row_errors, rows_of, without_infinities
from collector.correctness.snapshot import GRADIENT, Snapshot, widened

#: The largest move of each run's weights, in units of the last place. In bfloat16 half a unit makes errors 1.15 times as large as
#: eager's own, a whole one 2 times, two units 3 times. The larger moves find ties that rounding to a coarse grid always decides
#: in one way: with half and whole units only, one right program of 20 failed, with these none of 100.
NUDGES = (0.5, 1.0, 2.0) * 8
#: The number of runs that come first: rows that jump in them are among the rows that jump in all runs. Further runs follow only
#: if outputs do not agree by these. 60 wrong and right programs, made from a training step of ViTTiny, were judged alike by both.
FEW = 6
#: The period of `NUDGES`: after this many runs the same move comes again.
_KINDS = 3
#: The smallest share of rows that must be left to compare; with fewer nothing is known of the outputs.
LEAST_SHARE = 0.5
#: The largest usual error of one row over the usual error of all rows; a larger one is taken for a jump in most runs.
_UNEVEN = 3.0
#: The largest jump of the compiled program over eager's largest jump.
_LARGER = 3.0
#: The most rows of the compiled program that differ from all of eager's runs: `_MORE` times the rows in which one of eager's runs
#: differs from all others, plus `_ROWS` rows, or a share `_SHARE` of the rows that are not firm.
_MORE, _ROWS, _SHARE = 2, 2, 0.1
#: The ratio of errors between runs of equal moves from which a whole tensor is not firm.
_SPREAD = 2.0
#: The error of eager, as a share of the size, from which the reference is not used, and the error that turns a tensor so far that
#: the cosine is below PyTorch's bound of 0.99.
_UNUSABLE, _OTHER = 0.5, 0.14
#: `_OTHER` for a gradient without a usable reference, half as much: it is compared nevertheless, by its error.
_NOISY = 0.07
#: The fewest elements of a tensor whose error is steady from run to run.
_ENOUGH = 64
#: The most bytes of the host's memory for outputs of all runs.
_KEPT_BYTES = 1 << 30

#: A function that returns the outputs of the eager run with this number.
NudgedRun = Callable[[int], Snapshot]


def nudge(model: nn.Module, start: nn.Module, number: int, computes_in: torch.dtype | None) -> None:
    """Give a model the weights of another one, each moved by up to `NUDGES[number]` units in the last place.

    Only weights of two dimensions and more move: everything computed from them moves too, while moving a frequency or a scale
    may have more effect than rounding. `computes_in` is autocast's dtype.
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
    """The snapshots that are left to compare without near ties.

    They hold the firm rows of each output that did not agree, and all other outputs unchanged. `problem` says why the rows that
    were set aside cannot all be near ties, or is None. `told` has a text for each output on the rows that are not compared;
    `share` is the smallest share of compared rows among the groups: outputs, loss, gradients, state.
    """

    eager: Snapshot
    compiled: Snapshot
    reference: Snapshot | None
    problem: str | None = None
    told: dict[str, str] = field(default_factory=dict)
    share: float = 1.0


@dataclass(slots=True)
class _Leaf(Rows):
    """The rows of one output, with their errors in each run and the rows that jump."""

    jumps: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    usual: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    spread: float = 1.0
    #: Whether there is no usable reference for it.
    is_unknown: bool = False
    #: Whether the runs with the smallest moves already change it beyond comparison.
    is_noise: bool = False
    #: The rows that these runs change beyond comparison although the whole is compared: of a cache, the rows that a call writes.
    noise: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))

    def jumping_rows(self, value: torch.Tensor) -> torch.Tensor:
        """Return the rows that jump, on the host."""
        return widened(value).reshape(-1, self.width)[self.jumps.to(value.device)].cpu()

    def firm(self, value: torch.Tensor) -> torch.Tensor:
        """Return the rows that do not jump; return a tensor without jumps unchanged."""
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
        if self.is_unknown and self.wide and not is_gradient:
            self.noise = torch.stack(self.errors[1::_KINDS]).median(0).values > _OTHER * self.sizes
            self.jumps |= self.noise
        for group in groups:
            firm = group[:, ~self.jumps].square().sum(1).sqrt()
            least = float(firm.min())
            if self.base.numel() >= _ENOUGH and least > 0:
                self.spread = max(self.spread, float(firm.max()) / least)

    def yardstick(self) -> int:
        """Return the number of the run whose firm rows are furthest off, of eager itself and the runs with the smallest moves."""
        if not is_float(self.base):
            return 0
        firm = torch.stack(self.errors)[:, ~self.jumps].square().sum(1)
        gentle = [0, *range(1, len(firm), _KINDS)]
        furthest: int = max(gentle, key=lambda number: float(firm[number]))
        return furthest

    def live(self) -> int:
        """Count the rows that rounding reaches: all rows of integers, else the rows with an error in some run (at least 1)."""
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
    """Set aside the rows that are not firm in outputs that do not agree; return None if all of eager's outputs are firm.

    `wrong` are the paths of the outputs that do not agree. `nudged` has the runs of eager with other weights so far; without
    it all runs are made.
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
    """The errors of eager's outputs `eager` in runs with other weights, the first `runs` of `NUDGES`.

    `kept` has some outputs of all runs on the host; the first one is eager's.
    """

    eager: Snapshot
    leaves: dict[str, _Leaf]
    kept: dict[str, list[torch.Tensor]]
    runs: int = 0

    @classmethod
    def of(cls, eager: Snapshot, reference: Snapshot | None, wrong: Sequence[str], run: NudgedRun, runs: int) -> Nudged:
        """Run eager with other weights `runs` times; keep the outputs `wrong` of all runs if they are small."""
        found = cls(eager, rows_of(eager, reference, _Leaf), {path: [] for path in _small(eager, wrong)})
        found._note(eager)
        found.run_more(run, runs)
        return found

    def run_more(self, run: NudgedRun, runs: int) -> None:
        """Run eager with further weights until there are `runs` runs."""
        while self.runs < runs:
            self._note(run(self.runs))
            self.runs += 1
        steady = {path: leaf for path, leaf in self.leaves.items() if not leaf.other_shape}
        sizes = settle(_asking_size(leaf) for leaf in steady.values())
        for (path, leaf), size in zip(steady.items(), sizes, strict=True):
            leaf.decide(group_of(path) == GRADIENT, size)

    def knows(self, eager: Snapshot, paths: Sequence[str]) -> bool:
        """Return whether these outputs of `eager` are the very tensors for which eager was run with other weights."""
        return all(path in self.leaves and eager.get(path) is self.eager.get(path) for path in paths)

    def _note(self, made: Snapshot) -> None:
        """Add the errors of a run to each output; remove outputs that the run does not have."""
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
    """Return the paths of the smallest outputs for which the tensors of all runs together fit into `_KEPT_BYTES`."""
    sizes = sorted((value.nbytes, path) for path in paths if isinstance(value := eager.get(path), torch.Tensor))
    totals = accumulate(size * (len(NUDGES) + 1) for size, _ in sizes)
    return [path for (_, path), total in zip(sizes, totals, strict=True) if total <= _KEPT_BYTES]


def _asking_size(leaf: _Leaf) -> Asking[float]:
    """Compute the root mean square of an output's base; 0 for integers."""
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
        """Set rows that are not firm aside, and judge them by all runs; None if an output differs in dtype or shape."""
        ties = Ties(dict(self.eager), dict(self.compiled), dict(self.reference) if self.reference else None)
        of_other_shapes = [path for path in wrong if path in self.leaves and self.leaves[path].other_shape]
        of_one_shape = [path for path in wrong if path not in of_other_shapes]
        if not all(self._has_form_of_eager(path) for path in of_one_shape):
            return None
        for path in of_other_shapes:
            ties.told[path] = "all, since its shape differs between runs of eager"
            self._drop(ties, path)
        # `collector.correctness.comparing` has compared a gradient of noise that has a reference as far as possible.
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
        """Set aside an output that differs in each run; an error above `_LARGER` times the runs' largest is a problem."""
        leaf = self.leaves[path]
        made = float(leaf.errors_of(self._made(path)).cpu().square().mean().sqrt())
        most = float(torch.stack(leaf.errors).square().mean(1).sqrt().max())
        if made > _LARGER * most:
            ties.problem = f"{path}: RMSE {made:.3g}, that of eager under other weights {most:.3g} at most"
        ties.told[path] = "all, since eager is another one in each run"
        self._drop(ties, path)

    def _judged(self, ties: Ties, paths: list[str], run: NudgedRun) -> dict[str, float]:
        """Keep the firm rows of these outputs, and return the share of each output that is unlike every eager run."""
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
            noise = int(leaf.noise.sum())
            lost[path] = max(unlike, noise) / leaf.live()
            if bool(leaf.jumps.any()):
                ties.told[path] = (
                    f"{int(leaf.jumps.sum())} of {leaf.jumps.numel()} rows, {unlike} unlike every eager run"
                    + f", {noise} different in each" * bool(noise)
                )
            elif leaf.spread > _SPREAD:
                ties.told[path] = f"eager's own error varies by {leaf.spread:.1f}"
            self._keep_firm(ties, path, worst[path])
        return lost

    def _of_all_runs(self, paths: Sequence[str], run: NudgedRun) -> Iterator[tuple[int, str, object]]:
        """Yield the number of each run, a path and its value in that run; run eager again for values that were not kept."""
        kept = [path for path in paths if path in self.kept]
        yield from ((number, path, value) for path in kept for number, value in enumerate(self.kept[path]))
        if others := [path for path in paths if path not in self.kept]:
            # One after the other: the gradients of all runs together would take many times the memory of a training step.
            for number, snapshot in enumerate(chain((self.eager,), (run(number) for number in range(self.runs)))):
                yield from ((number, path, snapshot[path]) for path in others)

    def _unmatched(self, ties: Ties, path: str, runs: list[torch.Tensor]) -> int:
        """Count the compiled program's jumping rows that are unlike every eager run; too many or too far ones are a problem."""
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
        if bool(leaf.noise.any()):
            noise = leaf.noise[leaf.jumps]
            ties.problem = ties.problem or _other_length(path, [rows[noise] for rows in (base, *runs)], made[noise])
        return count

    def _made(self, path: str) -> torch.Tensor:
        made = self.compiled[path]
        return made if isinstance(made, torch.Tensor) else torch.empty(0)

    def _keep_firm(self, ties: Ties, path: str, worst: object) -> None:
        """Keep the firm rows of an output; if a reference judges, eager's rows come from the run that is furthest from it."""
        leaf = self.leaves[path]
        eager = self.eager[path]
        if bool(leaf.jumps.all()) or not isinstance(worst, torch.Tensor) or not isinstance(eager, torch.Tensor):
            self._drop(ties, path)
            return
        # A row that jumps moves the others a little, through attention or a norm; eager's runs show by how much. If the program
        # is compared with eager itself, the run that is furthest off would be the wrong one.
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
    """The distances of rows between eager's runs and the compiled program.

    `runs` has for each run the number of its rows that are unlike every other run's, `made` the number of the compiled program's
    rows that are unlike every run's; `runs_worst` and `made_worst` are the largest errors from the first run.
    """

    runs: list[int]
    made: int
    runs_worst: float
    made_worst: float


def _other_length(path: str, runs: list[torch.Tensor], made: torch.Tensor) -> str | None:
    """Return the problem of a row that is shorter or longer than eager ever makes it; None without one.

    The rows `[rows, elements]` of the runs and of the compiled program differ in each run of eager. Such noise does not halve or
    double their root mean square, while a row that was not written may be zeros.
    """
    lengths = torch.stack([without_infinities(rows).square().mean(-1).sqrt() for rows in runs])
    own = without_infinities(made).square().mean(-1).sqrt()
    wrong = (own < lengths.amin(0) / NOISY_LENGTH) | (own > lengths.amax(0) * NOISY_LENGTH)
    if not bool(wrong.any()):
        return None
    first = int(wrong.nonzero()[0])
    eagers = f"eager's {float(lengths[:, first].amin()):.3g} to {float(lengths[:, first].amax()):.3g}"
    return f"{path}: root mean square {float(own[first]):.3g} in a row that differs in each run of eager, {eagers}"


def _apart(runs: list[torch.Tensor], made: torch.Tensor, near: torch.Tensor, device: torch.device) -> _Apart:
    """Compare rows of `[rows, elements]` between eager's runs and the compiled program, on a device.

    Two rows are alike if they differ by at most `near`, `[rows]`. A run is compared with all others at once: pair by pair the
    comparison took a third of the time of checks on a GPU (docs/results.md).
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

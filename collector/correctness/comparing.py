"""The rules by which compiled outputs are right: as close to a more precise reference as eager's own, up to a stated factor.

The rule follows `torch._dynamo.utils.same`: `rmse(compiled) <= multiplier * rmse(eager) + tol / 10`, both errors against a
float64 run of the model. It is stricter than PyTorch's in four ways, each of which closes a hole:

- `tol` scales with the tensor's own magnitude. PyTorch's is absolute, so that a gradient of magnitude 1e-5 passes there
  whatever it holds.
- If the reference is usable, it alone decides on tensors of a thousand elements and more. PyTorch first passes every tensor
  that `torch.allclose` accepts; at a tolerance of 8e-2 it accepts outputs which are 1.06 times too large.
- An error is never allowed to be as large as the tensor (`SMALLEST_WRONG`): zeros fail.
- Without a usable reference the length of a tensor is compared as well as its direction.

A reference is used for a tensor only where eager agrees with it (`_USABLE`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch

from collector.correctness.norms import (
    SMALLEST_WRONG,
    Allowed,
    Asking,
    Tails,
    asking_cosine,
    asking_largest_share,
    asking_rms,
    asking_rmse,
    is_float,
    judge_differences,
    judge_tails,
    numbers,
    same_bits,
    settle,
)
from collector.correctness.pytorch_accuracy import SMALL, Tolerance
from collector.correctness.snapshot import (
    GRADIENT,
    LOSS,
    STATE,
    Opaque,
    Snapshot,
    UnknownOutputError,
    widened,
)
from collector.failures import classify
from collector.usage_errors import NotCheckedError
from collector.vocabulary import Stage, Status

#: The most characters of a reason.
_MESSAGE_LENGTH = 300
#: Parts of messages of earlier errors that show in the check because it is the next to use the device or a cudagraph's outputs.
_ELSEWHERE = ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS", "device-side assert", "overwritten by a subsequent run")


def is_limit(error: Exception) -> bool:
    """Return whether an error, raised while outputs were kept or compared, is a limit of the check and not of the program."""
    if classify(error, Stage.CORRECTNESS)[0] is Status.OOM or type(error).__name__ == "AcceleratorError":
        return False
    return not any(part in str(error) for part in _ELSEWHERE)


def reason(error: Exception) -> str:
    """Return the type and the first line of an error; for an `UnknownOutputError` its message."""
    if isinstance(error, UnknownOutputError):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:_MESSAGE_LENGTH]


@contextmanager
def checking() -> Iterator[None]:
    """Turn an error of the check itself into a `NotCheckedError`. No code of the model may run in this context."""
    try:
        yield
    except NotCheckedError:
        raise
    except Exception as error:
        if is_limit(error):
            raise NotCheckedError(reason(error)) from error
        raise


#: Without a usable reference a tensor is noise if its magnitude is below this share of the largest in its group (outputs, loss,
#: gradients, state): gradients that are zero in exact arithmetic (a bias before a normalisation) hold rounding noise alone.
_FLOOR = 1e-3
#: The largest error of eager, over the reference's magnitude, up to which the reference is used. The rule allows two to three
#: times eager's error: from a half on, it would allow an error as large as the tensor itself, and so zeros.
_USABLE = 0.5
#: PyTorch's bound (`torch._dynamo.utils.same`) on the cosine of the angle between compiled and eager.
_COSINE = 0.99
#: Noise that turns a tensor by the angle of `_COSINE` changes its length by `1 / cos - 1`, about one percent.
_LENGTH = 1 / _COSINE - 1
#: The largest factor between a tensor's length and eager's if noise decides its direction: noise of eager's own size does not
#: halve or double the length.
NOISY_LENGTH = 2.0
#: In a dtype of 8 bits (a step of at least `_COARSE` of the value) the last bit of the computation now and then rounds a value
#: to the next step. If one value in `_FLIPS` squared rounds the other way, the root mean square error is a step over `_FLIPS`.
_FLIPS, _COARSE = 16.0, 0.1
#: The step of float32 is below this, that of float16 above.
_FINE = 1e-4
#: The allowed error of a hardly random tensor in units of its change by another seed: three programs draw their own numbers.
_MOVES = 3.0
#: The most bytes of outputs, counted in float64 (`_WIDEST` bytes an element), that are compared together.
_SIDE_BY_SIDE, _WIDEST = 256 << 20, 8
#: The widest tolerance at which elements are compared one by one. PyTorch's wider ones are meant for error norms.
_CLOSE = 1e-2
#: The largest size of a reference that holds nothing, as a share of PyTorch's bound: rounding of float64, even if it has grown.
_NOTHING = 1e-3
#: Gradients that are all as small as this, a step of float32 at one, are taken for rounding.
_NO_GRADIENT = torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True)
class Agreement:
    """The outcome of one comparison. `problem` is None if the outputs agree.

    `rmse_ratio` is the worst `rmse(compiled) / rmse(eager)` against the reference, None without a reference or if eager is
    exact; `cosine` is the smallest cosine similarity of a compiled and an eager tensor. `by_cosine` counts the floating tensors
    that were judged without a reference; `noisy` counts the gradients in which eager's own error is above half their size, so
    that only their size and error could be judged. `unchecked` has the reason for each part that could not be compared. `tails`
    has the worst element and the worst slice as shares of the allowed error. `wrong` has the paths of the outputs that do not
    agree, `unsure` the paths among them on which a reference might decide otherwise. `margin` is the largest error as a share of
    its limit, over all rules and floating tensors, and `nearest` its path: above 1 the tensor fails; it is infinite if the tensor
    fails by a rule without a limit.
    """

    problem: str | None
    rmse_ratio: float | None
    cosine: float | None
    compared: int
    by_cosine: int = 0
    noisy: int = 0
    unchecked: dict[str, str] = field(default_factory=dict)
    tails: dict[str, float] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    margin: float | None = None
    nearest: str = ""

    @property
    def is_unsure(self) -> bool:
        """Return whether a reference might decide otherwise on every output that does not agree."""
        return bool(self.wrong) and set(self.wrong) <= set(self.unsure)


def identical(first: Snapshot, second: Snapshot) -> str | None:
    """Return the path of the first difference between two eager runs; None if all values are equal (`same_values`)."""
    if first.keys() != second.keys():
        return "the structure of the outputs"
    return next(iter(_changed(first, second)), None)


def held_once(later: Snapshot, first: Snapshot) -> Snapshot:
    """Return the later snapshot with the first one's leaves wherever values are equal, so that they are held once."""
    same = same_bits([(first.get(path), leaf) for path, leaf in later.items()])
    return {path: first[path] if is_same else leaf for (path, leaf), is_same in zip(later.items(), same, strict=True)}


def differences(first: Snapshot, second: Snapshot) -> dict[str, float]:
    """Return the root mean square difference of each tensor that differs between two runs; infinite for other leaves."""
    if first.keys() != second.keys():
        return dict.fromkeys(first, math.inf)
    changed = _changed(first, second)
    floats = [path for path in changed if is_float(first[path]) and is_float(second[path])]
    errors = settle(asking_rmse(first[path], second[path]) for path in floats)
    return dict.fromkeys(changed, math.inf) | dict(zip(floats, errors, strict=True))


def _changed(first: Snapshot, second: Snapshot) -> list[str]:
    """Return the paths of the leaves that differ between two runs of one structure."""
    same = same_bits([(one, second[path]) for path, one in first.items()])
    return [path for path, is_same in zip(first, same, strict=True) if not is_same]


def without_numbers(made: Snapshot) -> str | None:
    """Return a message on the first output of an eager run that has NaN or no finite value; None if all can be compared.

    Infinities among finite values pass, since models mask logits with `-inf` on purpose. Parameters, buffers and inputs are
    left out, since a cache may be allocated and not yet filled.
    """
    floats = {path: value for path, value in made.items() if not path.startswith(STATE) and is_float(value)}
    read = numbers(*(_numbers_in(value) for value in floats.values()))
    for (path, value), nan, finite in zip(floats.items(), read[::2], read[1::2], strict=True):
        if nan:
            return f"{path}: {nan:.0f} of {value.numel()} values are NaN in eager"
        if not finite:
            return f"{path}: eager has no finite value"
    return None


def _numbers_in(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of two numbers: how many values are NaN, and whether any value is finite."""
    wide = widened(value)
    return torch.stack([wide.isnan().sum(), wide.isfinite().any().long()])


def compare(
    eager: Snapshot,
    compiled: Snapshot,
    reference: Snapshot | None,
    tolerance: Tolerance,
    slight: Mapping[str, float] | None = None,
) -> Agreement:
    """Compare compiled outputs with eager's: by the reference if it is usable, else by cosine similarity and length.

    Structure, dtype and shape must be equal; integers and booleans exactly; NaN and infinities in the same places. `slight` has
    the tensors that another seed changes a little, with the root mean square of that change. For these a multiple (`_MOVES`) of
    the change is allowed in addition, and their worst elements are not judged, since an accident changes few elements.
    """
    if eager.keys() != compiled.keys():
        odd = sorted(eager.keys() ^ compiled.keys())
        return Agreement(f"outputs differ in structure at {odd[0]}", None, None, 0)
    work = _Comparison(tolerance, _sizes(eager), slight or {})
    judged: dict[str, str | None] = {}
    for paths in _windows(eager):
        leaves = (work.checked_leaf(path, eager[path], compiled[path], (reference or {}).get(path)) for path in paths)
        judged |= zip(paths, settle(leaves), strict=True)
    # Outputs that are wrong for certain come first.
    wrong = sorted((path for path, problem in judged.items() if problem), key=lambda path: path in work.unsure)
    problems = [f"{path}: {judged[path]}" for path in wrong]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Agreement(
        problem=problems[0] + more if problems else None,
        rmse_ratio=max(work.ratios, default=None),
        cosine=min(work.cosines, default=None),
        compared=len(eager),
        by_cosine=work.by_cosine,
        noisy=work.noisy,
        unchecked=work.unchecked,
        tails={"element": work.worst.element, "slice": work.worst.slice} if work.worst.judged else {},
        wrong=tuple(wrong),
        unsure=tuple(work.unsure),
        margin=max(work.margins.values(), default=None),
        nearest=max(work.margins, key=work.margins.__getitem__, default=""),
    )


def group_of(path: str) -> str:
    """Return the group of an output by its path: `LOSS`, `GRADIENT`, `STATE`, or "output"."""
    return next((group for group in (LOSS, GRADIENT, STATE) if path.startswith(group)), "output")


def _windows(eager: Snapshot) -> Iterator[list[str]]:
    """Divide the outputs into groups of paths that are compared together.

    The device may have no room for the whole of a reference that was made on the host.
    """
    window: list[str] = []
    held = 0
    for path, value in eager.items():
        size = value.numel() * _WIDEST if isinstance(value, torch.Tensor) else 0
        if window and held + size > _SIDE_BY_SIDE:
            yield window
            window, held = [], 0
        window.append(path)
        held += size
    yield window


def _sizes(eager: Snapshot) -> dict[str, float]:
    """Return the root mean square of each floating output."""
    floats = {path: value for path, value in eager.items() if is_float(value)}
    return dict(zip(floats, settle(map(asking_rms, floats.values())), strict=True))


@dataclass(frozen=True, slots=True)
class _Floats:
    """A floating tensor as eager, the compiled program and the reference have it; `exact` is None without a reference."""

    eager: torch.Tensor
    compiled: torch.Tensor
    exact: Any
    #: Eager's root mean square, the reference's, and eager's error against it; infinite without a reference.
    size: float
    exact_size: float
    own: float
    #: The distance of two neighbouring values of the dtype, as a share of the value.
    step: float = 0.0
    #: The root mean square of its change by another seed if that is slight, else 0.
    moved: float = 0.0

    @classmethod
    def of(cls, eager: torch.Tensor, compiled: torch.Tensor, exact: Any, size: float) -> Asking[_Floats]:
        if not isinstance(exact, torch.Tensor) or exact.shape != eager.shape:
            return cls(eager, compiled, None, size, math.inf, math.inf)
        (is_usable,) = yield ((exact.isfinite() == eager.isfinite()).all(),)
        if not is_usable:
            return cls(eager, compiled, None, size, math.inf, math.inf)
        exact_size = yield from asking_rms(exact)
        own = yield from asking_rmse(eager, exact)
        return cls(eager, compiled, exact, size, exact_size, own)

    @property
    def is_known(self) -> bool:
        """Return whether eager agrees with the reference, so that the reference can judge the compiled tensor."""
        return 0 < self.exact_size < math.inf and self.own <= _USABLE * self.exact_size


class _Judged(NamedTuple):
    """The problem of a floating tensor, or None, and its error as a share of the limit: above 1 it fails."""

    problem: str | None
    margin: float

    @classmethod
    def of(cls, problem: str | None, margin: float) -> _Judged:
        """Return a judgement; its margin is infinite if the problem is of a rule without a limit (zeros in a slice)."""
        return cls(problem, math.inf if problem and margin <= 1 else margin)


@dataclass
class _Comparison:
    """The state of a comparison: it judges leaf by leaf and keeps the measures of all.

    `sizes` has the root mean square of each floating output of eager.
    """

    tolerance: Tolerance
    sizes: dict[str, float]
    slight: Mapping[str, float] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)
    by_cosine: int = 0
    noisy: int = 0
    unchecked: dict[str, str] = field(default_factory=dict)
    worst: Tails = field(default_factory=Tails)
    unsure: list[str] = field(default_factory=list)
    margins: dict[str, float] = field(default_factory=dict)
    #: The paths of tensors that were judged without a reference.
    without_reference: set[str] = field(default_factory=set)

    @cached_property
    def _floors(self) -> dict[str, float]:
        """The noise floor of each group; a loss of ten must not hide gradients of a thousandth."""
        floors: dict[str, float] = {}
        for path, size in self.sizes.items():
            group = group_of(path)
            floors[group] = max(floors.get(group, 0.0), _FLOOR * size)
        return floors

    def checked_leaf(self, path: str, eager: object, compiled: object, exact: object) -> Asking[str | None]:
        """Judge a leaf as `leaf` does, but record a part that cannot be compared in `unchecked` instead of raising."""
        try:
            if isinstance(eager, Opaque) and eager == compiled:
                raise TypeError(f"no tensors are found in a {eager.kind}")
            problem = yield from self.leaf(path, eager, compiled, exact)
            if problem:
                self.margins.setdefault(path, math.inf)
            if problem and path in self.without_reference:
                self.unsure.append(path)
            return problem
        except Exception as error:
            if not is_limit(error):
                raise
            self.unchecked[path] = reason(error)
            return None

    def leaf(self, path: str, eager: object, compiled: object, exact: object) -> Asking[str | None]:
        """Return the problem of one output, or None."""
        if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
            same = type(eager) is type(compiled) and (eager == compiled or self._close_scalars(eager, compiled))
            return None if same else f"{compiled!r} instead of {eager!r}"
        if eager.dtype != compiled.dtype:
            return f"dtype {compiled.dtype} instead of {eager.dtype}"
        if eager.shape != compiled.shape:
            return f"shape {tuple(compiled.shape)} instead of {tuple(eager.shape)}"
        if not is_float(eager):
            (others,) = yield ((eager != compiled).sum(),)
            return f"{others:.0f} of {eager.numel()} values differ" if others else None
        step, device = torch.finfo(eager.dtype).eps, eager.device
        eager, compiled = widened(eager), widened(compiled)
        if isinstance(exact, torch.Tensor):
            # The device may have no room for the whole of a reference that was made on the host: hence `_windows`.
            exact = widened(exact).to(device)
        if problem := (yield from _elsewhere(eager, compiled)):
            return problem
        known = yield from _Floats.of(eager, compiled, exact, self.sizes[path])
        of = replace(known, step=step, moved=self.slight.get(path, 0.0))
        problem, self.margins[path] = yield from self._floats(path, of)
        return problem

    def _floats(self, path: str, of: _Floats) -> Asking[_Judged]:
        group = group_of(path)
        floor = self._floors[group]
        # Below the floor a tensor's direction may be rounding noise, which must not become the metric.
        if of.size > floor:
            cosine = yield from asking_cosine(of.eager, of.compiled)
            self.cosines.append(cosine)
        if of.is_known:
            return (yield from self._by_reference(of, group, floor))
        if (least := self._of_nothing(of, group, floor)) is not None:
            wrong = yield from asking_rmse(of.compiled, of.exact)
            if wrong <= least:
                return _Judged(None, _share(wrong, least))
        if of.size <= floor:
            difference = yield from asking_rmse(of.compiled, of.eager)
            if difference <= floor:
                return _Judged(None, _share(difference, floor))
        # Rounding can grow through the backward pass of a deep network until it outweighs a gradient, in eager as in
        # compiled code: no direction is right then. Only gradients are excused for this reason.
        if of.exact is not None and group == GRADIENT:
            return (yield from self._by_size(of))
        self.without_reference.add(path)
        return (yield from self._by_cosine(of))

    def _of_nothing(self, of: _Floats, group: str, floor: float) -> float | None:
        """Return an absolute bound where nothing is computed but zeros, as by `x - x.mean()` of equal values; else None.

        Then eager and reference hold rounding alone, or zeros, and neither has a size or a direction to compare with. The bound
        is PyTorch's. Gradients may all be small, and have a smaller one.
        """
        least = _NO_GRADIENT if group == GRADIENT else min(self.tolerance.tol, _CLOSE) / 10
        is_nothing = floor / _FLOOR <= least and of.exact_size <= _NOTHING * least
        return least if of.exact is not None and is_nothing else None

    def _by_reference(self, of: _Floats, group: str, floor: float) -> Asking[_Judged]:
        wrong = yield from asking_rmse(of.compiled, of.exact)
        if of.own > 0 and of.size > floor:
            self.ratios.append(wrong / of.own)
        allowed = min(self._allowed(of), SMALLEST_WRONG * of.exact_size)
        margin = _share(wrong, allowed)
        # Eager's few elements, the loss above all, can be exact by chance: no multiple of their error is a fair limit.
        if of.eager.numel() < SMALL:
            close = yield from self._close(of)
            if close is not None:
                return _Judged(None, min(close, margin))
        if wrong <= allowed:
            if of.moved:
                return _Judged(None, margin)
            free = max(min(self.tolerance.tol, _CLOSE), of.step)
            size, multiplier = max(of.exact_size, floor), self.tolerance.multiplier_for(of.eager.shape)
            allowed_for = Allowed(size, multiplier, free, jumps=group == GRADIENT)
            tails = yield from judge_tails(of.eager, of.compiled, of.exact, allowed_for)
            return self._tails(tails, margin)
        problem = f"RMSE to the reference {wrong:.3g}, eager's {of.own:.3g}, allowed {allowed:.3g}"
        return _Judged.of(problem, margin)

    def _by_size(self, of: _Floats) -> Asking[_Judged]:
        self.noisy += 1
        wrong = yield from asking_rmse(of.compiled, of.exact)
        allowed = self._allowed(of)
        margin = _share(wrong, allowed)
        if wrong > allowed:
            problem = f"RMSE to the reference {wrong:.3g}, eager's {of.own:.3g}, allowed {allowed:.3g}"
            return _Judged.of(problem, margin)
        made = yield from asking_rms(of.compiled)
        least, most = min(of.size, of.exact_size), max(of.size, of.exact_size)
        if least / NOISY_LENGTH <= made <= most * NOISY_LENGTH:
            # The margin counts the halvings or doublings of the size outside the range of both sizes.
            apart = [math.log(a / b, NOISY_LENGTH) for a, b in ((made, most), (least, made)) if a > 0]
            return _Judged(None, max([margin, *apart]))
        return _Judged.of(f"root mean square {made:.3g}, eager's {of.size:.3g}", margin)

    def _by_cosine(self, of: _Floats) -> Asking[_Judged]:
        self.by_cosine += 1
        close = yield from self._close(of)
        cosine = yield from asking_cosine(of.eager, of.compiled)
        made = yield from asking_rms(of.compiled)
        # Of few elements in reduced precision the length is noisy.
        is_noisy = of.step > _FINE
        slack = _LENGTH * (self.tolerance.multiplier_for(of.eager.shape) if is_noisy else self.tolerance.multiplier)
        margin = max(_share(1 - cosine, 1 - _COSINE), _share(abs(made - of.size), slack * of.size))
        if close is not None:
            return _Judged(None, min(close, margin))
        if cosine < _COSINE:
            self.cosines.append(cosine)  # a tensor that fails by its direction counts, however small it is
            return _Judged.of(f"cosine similarity {cosine:.4f}, below {_COSINE}", margin)
        if abs(made - of.size) > slack * of.size:
            size = f"{made / of.size:.3g} times as large as eager's, allowed {1 - slack:.2f} to {1 + slack:.2f}"
            return _Judged.of(size, margin)
        if of.moved:
            return _Judged(None, margin)
        difference = yield from asking_rmse(of.compiled, of.eager)
        tails = yield from judge_differences(of.eager, of.compiled, of.size, difference)
        return self._tails(tails, margin)

    def _tails(self, found: Tails, margin: float) -> _Judged:
        self.worst.judged += 1
        self.worst.element = max(self.worst.element, found.element)
        self.worst.slice = max(self.worst.slice, found.slice)
        return _Judged.of(found.problem, max(margin, found.element, found.slice))

    def _allowed(self, of: _Floats) -> float:
        rounding = of.step / _FLIPS if of.step >= _COARSE else 0.0
        return (
            self.tolerance.multiplier_for(of.eager.shape) * of.own
            + max(self.tolerance.tol / 10, rounding) * of.exact_size
            + _MOVES * of.moved
        )

    def _close(self, of: _Floats) -> Asking[float | None]:
        """Return the largest difference from eager as a share of `torch.allclose`'s limit; None if `allclose` fails."""
        tol = min(self.tolerance.tol, _CLOSE)
        floor = tol * min(1.0, of.size)
        (is_close,) = yield (torch.isclose(of.compiled, of.eager, rtol=tol, atol=floor, equal_nan=True).all(),)
        if not is_close:
            return None
        share = yield from asking_largest_share(of.compiled, of.eager, tol, floor)
        return min(1.0, share)

    def _close_scalars(self, eager: object, compiled: object) -> bool:
        if not isinstance(eager, float) or not isinstance(compiled, float):
            return False
        tol = min(self.tolerance.tol, _CLOSE)
        return math.isclose(eager, compiled, rel_tol=tol, abs_tol=tol) or (math.isnan(eager) and math.isnan(compiled))


def _share(error: float, limit: float) -> float:
    return error / limit if limit > 0 else 0.0 if error <= 0 else math.inf


def _elsewhere(eager: torch.Tensor, compiled: torch.Tensor) -> Asking[str | None]:
    """Return a message if NaN or infinities are in other places than in eager, or infinities have another sign; else None."""
    # Zero times a value is no number if the value is infinite or none: with finite values everywhere one comparison is enough.
    (are_finite,) = yield ((eager * 0 == compiled * 0).all(),)
    if are_finite:
        return None
    other = torch.zeros((), dtype=torch.bool, device=eager.device)
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        other = other | (kind(eager) != kind(compiled)).any()
    (is_elsewhere,) = yield (other,)
    if not is_elsewhere:
        return None
    counts = int((~compiled.isfinite()).sum()), int((~eager.isfinite()).sum())
    elsewhere = " in other places or of another kind" if counts[0] == counts[1] else ""
    return f"{counts[0]} values are NaN or infinite, eager has {counts[1]}{elsewhere}"

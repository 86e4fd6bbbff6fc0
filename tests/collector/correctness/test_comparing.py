"""When compiled outputs count as right, and what is said when they do not."""

import math

import pytest
import torch
import torch._dynamo.utils

from collector.correctness.comparing import compare, identical, without_numbers
from collector.correctness.pytorch_accuracy import Tolerance
from collector.correctness.snapshot import GRADIENT, Opaque

TIGHT = Tolerance(1e-3, 2.0)


def wave(numel=2000, scale=1.0, seed=0, dtype=torch.float32):
    return (torch.randn(numel, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale).to(dtype)


def judged(eager, compiled, reference=None, tolerance=TIGHT):
    wrap = [{"x": value} for value in (eager, compiled)]
    return compare(*wrap, None if reference is None else {"x": reference}, tolerance)


def _with(tensor, index, value):
    changed = tensor.clone()
    changed[index] = value
    return changed


EAGER = wave()
WHOLE = torch.arange(12)


@pytest.mark.parametrize(
    ("eager", "compiled", "said"),
    [
        (EAGER, EAGER + 1, "RMSE to the reference"),
        (EAGER, EAGER.double(), "dtype torch.float64 instead of torch.float32"),
        (EAGER, EAGER.reshape(2, 1000), "shape (2, 1000) instead of (2000,)"),
        (EAGER, _with(EAGER, 3, math.nan), "1 values are NaN or infinite, eager has 0"),
        (_with(EAGER, 3, math.nan), EAGER, "0 values are NaN or infinite, eager has 1"),
        (WHOLE, _with(WHOLE, 5, 7), "1 of 12 values differ"),
        ("positive", "negative", "'negative' instead of 'positive'"),
        (1.0, 1.1, "1.1 instead of 1.0"),
        (True, 1, "1 instead of True"),
        (None, EAGER, "instead of None"),
        (Opaque("generator"), Opaque("tuple_iterator"), "a tuple_iterator instead of a generator"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(eager, compiled, said):
    reference = eager.double() if isinstance(eager, torch.Tensor) and eager.is_floating_point() else None
    problem = judged(eager, compiled, reference).problem
    assert problem.startswith("x: ") and said in problem


@pytest.mark.parametrize(
    ("compiled", "reference", "margin"),
    [
        (EAGER + 5e-5, EAGER.double(), 5e-5 / (1e-4 * 1.0)),  # eager is exact: a tenth of the tolerance is the limit
        (EAGER * 1.005, None, 0.5 * 0.01 / (2 * 0.0101)),  # no reference: of the length
        (EAGER * 1.06, None, 0.06 / (2 * 0.0101)),
        (EAGER[:100] * 1.0005, EAGER[:100].double(), 0.38),  # few elements: `allclose` allows more
        (_with(EAGER, 3, math.nan), EAGER.double(), math.inf),
    ],
)
def test_the_margin_is_the_error_over_its_limit(compiled, reference, margin):
    found = judged(EAGER[: len(compiled)], compiled, reference)
    assert found.margin == pytest.approx(margin, rel=0.1)
    assert (found.problem is None) is (found.margin <= 1)
    assert found.nearest == "x"


def test_the_same_infinity_in_both_passes_and_another_kind_is_a_problem():
    for replaced in (math.nan, -math.inf):
        eager = _with(EAGER, 3, replaced)
        assert judged(eager, eager.clone(), eager.double()).problem is None
        assert judged(_with(EAGER, 3, math.inf), eager).problem is not None


def test_another_structure_is_told_and_eager_runs_agree_in_every_bit():
    for first, second in [({"a": EAGER}, {"b": EAGER}), ({"a": EAGER}, {})]:
        found = compare(first, second, None, TIGHT)
        assert found.problem.startswith("outputs differ in structure at ")
        assert (found.compared, identical(first, second)) == (0, "the structure of the outputs")
    for value in (EAGER, _with(EAGER, 0, math.nan), torch.empty(0)):
        assert identical({"x": value}, {"x": value.clone()}) is None
    assert identical({"x": math.nan}, {"x": math.nan}) is None
    for one, two in ((EAGER, EAGER + 1e-6), (EAGER, EAGER.double()), (1, True)):
        assert identical({"x": one}, {"x": two}) == "x"


@pytest.mark.parametrize(
    ("made", "said"), [(wave(seed=3), None), (torch.zeros(2000), "root mean square 0"), (4 * wave(seed=3), "RMSE")]
)
def test_of_a_gradient_that_is_noise_in_eager_size_and_error_are_judged(made, said):
    # In a deep network under autocast rounding outweighs gradients: eager, compiled and reference share no direction.
    loss, path = {"loss": torch.tensor(10.0)}, "grad['weight']"
    reference = {"loss": loss["loss"].double(), path: wave(seed=1, dtype=torch.float64)}
    found = compare(loss | {path: wave(seed=2)}, loss | {path: made}, reference, TIGHT)
    assert found.noisy == 1
    assert found.problem is None if said is None else said in found.problem


def test_without_a_usable_reference_the_direction_decides():
    assert judged(EAGER, EAGER + 0.01 * wave(seed=1)).problem is None
    assert "cosine similarity" in judged(EAGER, EAGER + wave(seed=1)).problem
    assert "times as large" in judged(EAGER[:10], 1.05 * EAGER[:10]).problem, "few elements of float32 have no noise"
    noisy = (EAGER + 0.05 * wave(seed=1)).bfloat16()  # of reduced precision
    assert judged(EAGER.bfloat16(), noisy, tolerance=Tolerance(1e-3, 3.0)).problem is None
    assert judged(EAGER, EAGER.clone()).by_cosine == 1
    assert judged(EAGER, EAGER.clone(), EAGER.double()).by_cosine == 0
    reference = {"x": wave(seed=1, dtype=torch.float64)}
    found = compare({"x": wave(seed=2)}, {"x": wave(seed=3)}, reference, TIGHT)
    assert "cosine similarity" in found.problem
    assert (found.by_cosine, found.rmse_ratio) == (1, None)
    for unusable in (torch.zeros(3), torch.full((2000,), math.nan)):  # of another shape, or without numbers
        assert judged(EAGER, EAGER.clone(), unusable.double()).rmse_ratio is None


@pytest.mark.parametrize(
    ("eager", "made", "exact", "beside", "path", "passes"),
    [
        (0.0, 2e-5, 4e-13, 0.0, "x", True),  # layer_norm of equal values: rounding over the root of its epsilon
        (0.0, 2e-5, 0.0, 0.0, "x", True),
        (7e-9, 6e-8, 1e-15, 0.0, "x", True),
        (0.0, 2e-3, 0.0, 0.0, "x", False),
        (0.0, 2e-5, 1e-5, 0.0, "x", False),  # the reference is no zero
        (0.0, 2e-5, 0.0, 1e-3, "x", False),  # another output shows how large outputs are
        (0.0, 2e-5, 0.0, 0.0, GRADIENT + "'x']", False),
        (1e-16, 7e-10, 1e-20, 0.0, GRADIENT + "'x']", True),
    ],
)
def test_what_is_zero_but_for_rounding_has_pytorchs_absolute_bound(eager, made, exact, beside, path, passes):
    like, other = wave(seed=1), {f"{path}.beside": beside * EAGER}
    reference = {path: exact * wave(seed=2, dtype=torch.float64)} | {name: one.double() for name, one in other.items()}
    found = compare({path: eager * EAGER} | other, {path: made * like} | other, reference, Tolerance(1e-3, 2.0))
    assert (found.problem is None) is passes, found.problem


def test_outputs_without_numbers_are_found_and_masks_are_not():
    assert without_numbers({"x": _with(EAGER, 3, math.nan)}) == "x: 1 of 2000 values are NaN in eager"
    for value in (torch.full((4,), -math.inf), torch.tensor(math.inf)):
        assert without_numbers({"x": value}) == "x: eager has no finite value"
        assert without_numbers({"state['cache']": value}) is None
    for value in (_with(EAGER, 3, -math.inf), WHOLE, torch.empty(0)):
        assert without_numbers({"x": value}) is None


@pytest.mark.parametrize(
    ("numel", "times", "passes"), [(2000, 1.9, True), (2000, 6.0, False), (8, 9, True), (400, 7, True)]
)
def test_the_error_against_float64_may_be_eagers_own_times_the_multiplier(numel, times, passes):
    exact, noise = wave(numel, dtype=torch.float64), wave(numel, seed=1, dtype=torch.float64) * 0.01
    found = judged((exact + noise).float(), (exact - times * noise).float(), exact)
    assert (found.problem is None) is passes
    assert found.rmse_ratio == pytest.approx(times, rel=1e-3)


@pytest.mark.parametrize("factor", [0, 3])
def test_a_tiny_wrong_gradient_fails_where_pytorchs_rule_passes_it(factor):
    exact = wave(scale=1e-5, dtype=torch.float64)
    eager, made = exact.float(), factor * exact.float()
    assert all(judged(eager, made, reference).problem for reference in (None, exact))
    # torch._dynamo.utils.same takes its tolerance as absolute, so that there this passes: the reason for our own rule.
    assert torch._dynamo.utils.same(eager, made, exact, tol=1e-3)


def test_rounding_noise_passes_and_a_large_value_in_its_place_fails():
    eager, made = ({"weight": wave(), "bias": wave(scale=1e-9, seed=seed)} for seed in (1, 2))
    exact = {"weight": wave(dtype=torch.float64), "bias": torch.zeros(2000, dtype=torch.float64)}
    found = compare(eager, made, exact, TIGHT)
    assert (found.problem, found.cosine) == (None, pytest.approx(1.0))
    failed = compare(eager, made | {"bias": wave(scale=1e-2, seed=2)}, exact, TIGHT)
    assert failed.problem.startswith("bias: cosine")
    assert failed.cosine < 0.99, "the metric agrees with the reason"

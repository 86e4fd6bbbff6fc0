"""One wrong element in a million and one wrong column of many fail; rounding of every shape passes."""

import re

import pytest
import torch

from collector.correctness import norms
from collector.correctness.comparing import compare
from collector.correctness.pytorch_accuracy import Tolerance
from collector.correctness.snapshot import same_values

LOW, HIGH = Tolerance(1e-3, 3.0), Tolerance(1e-3, 2.0)
ROWS, COLUMNS = 700, 1_527


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rounded(exact, error, seed, dtype):
    """As a network's output is: with an error that is shared by all, then rounded to the dtype."""
    return (exact + error * noise(*exact.shape, seed=seed)).to(dtype)


def logits(error=0.01, dtype=torch.bfloat16, shape=(ROWS, COLUMNS)):
    exact = 0.58 * noise(*shape)
    return rounded(exact, error, 1, dtype), rounded(exact, error, 2, dtype), exact


def problem(eager, made, exact=None, tolerance=LOW, path="x"):
    reference = None if exact is None else {path: exact}
    return compare({path: eager}, {path: made}, reference, tolerance).problem


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def right(request):
    """Outputs of eager and of a right program, in bfloat16 with their float64 reference."""
    is_low = request.param is torch.bfloat16
    eager, made, exact = logits(error=0.01 if is_low else 1e-6, dtype=request.param)
    reference = exact if is_low else None
    assert problem(eager, made, reference) is None
    return eager, made, reference


def changed(made, how):
    made = made.clone()
    how(made)
    return made


WRONG = {
    "one element": lambda t: t[7].view(-1)[-3:-2].add_(2.0),
    "last column zero": lambda t: t[..., -1].zero_(),
    "last column of another": lambda t: t[..., -1].copy_(t[..., 0]),
    "last block one late": lambda t: t[-1, -8:].copy_(t[-1, -9:-1].clone()),
    "one sign": lambda t: t.view(-1)[t.abs().argmax() : t.abs().argmax() + 1].neg_(),
}


@pytest.mark.parametrize("how", WRONG)
def test_what_a_root_mean_square_does_not_show_fails(how, right):
    eager, made, reference = right
    wrong = changed(made, WRONG[how])
    assert float((wrong.double() - made.double()).square().mean().sqrt()) < 0.03, "no RMSE rule finds it"
    assert problem(eager, wrong, reference) is not None


def test_zeros_are_found_where_eager_is_far_off_and_in_a_small_slice():
    eager, made, exact = logits(error=0.12)
    assert problem(eager, made, exact) is None
    said = problem(eager, changed(made, WRONG["last column zero"]), exact)
    assert said == f"x: all zero at index {COLUMNS - 1} of dimension 1, where eager is not"
    exact = noise(64, 500) * torch.logspace(0, -4, 64, dtype=torch.float64)[:, None]
    eager, made = ((exact * (1 + 0.004 * noise(64, 500, seed=seed))).bfloat16() for seed in (1, 2))
    assert problem(eager, made, exact) is None
    assert "all zero at index 40 of dimension 0" in problem(eager, changed(made, lambda t: t[40].zero_()), exact)


def test_rows_in_another_order_are_found_without_a_reference():
    exact = noise(ROWS, COLUMNS).sign()
    eager, made = (rounded(exact, 0.01, seed, torch.bfloat16) for seed in (1, 2))
    assert problem(eager, made) is None
    told = problem(eager, changed(made, lambda t: t[100:104].copy_(t[100:104].flip(0))))
    assert re.fullmatch(r"x: RMSE 1\.4\d? from eager at index 10[0-3] of dimension 0, where eager's size is 1", told)
    small = [changed(t, lambda t: t[40].mul_(0.1)) for t in (eager, made)]
    assert problem(small[0], changed(small[1], lambda t: t[40].neg_())) is None, "as small as another row's rounding"


@pytest.mark.parametrize("dims", [(3, 7, 11, 50), (1200,), (1100, 1)])
def test_places_are_told_in_every_shape_and_over_chunks(dims, monkeypatch):
    eager, made, exact = logits(shape=dims)
    place = tuple(size - 1 for size in dims)
    wrong = changed(made, lambda t: t[place].add_(0.9))
    for chunk in (1 << 22, 7):
        monkeypatch.setattr(norms, "_TAIL_CHUNK", chunk)
        assert problem(eager, made, exact) is None
        assert f" at {place}, eager's largest" in problem(eager, wrong, exact)


@pytest.mark.parametrize("seed", range(5))
def test_errors_with_heavy_tails_pass(seed):
    def heavy(seed):
        """Student's t with three degrees of freedom: few are large, in places of their own."""
        g = torch.Generator().manual_seed(seed)
        return torch.randn(200_000, generator=g) / (torch.randn(3, 200_000, generator=g).square().mean(0)).sqrt()

    exact = noise(200_000)
    eager, made = (exact + 1e-3 * heavy(number).double() for number in (seed, seed + 100))
    assert problem(eager.float(), made.float(), exact, HIGH) is None


def test_outliers_are_judged_by_their_own_size():
    exact = noise(20_000)
    exact[5] = 1001.6
    eager = exact.bfloat16()
    made = eager.clone()
    assert eager[5] == 1000
    made[5] = 1004  # the next value
    assert problem(eager, made, exact) is None
    assert problem(eager, made) is None


def test_one_unit_that_is_on_in_one_program_only_is_no_wrong_gradient():
    def gradient_problem(eager, made):
        return problem(eager, made, exact, Tolerance(1e-2, 2.0), path="grad['w']")

    exact = noise(640, 64)
    made = exact.float()
    made[3] += 0.02
    assert gradient_problem(exact.float(), made) is None
    exact = noise(1400, 64)
    eager, made = (rounded(exact, 0.02, seed, torch.float32) for seed in (1, 2))
    assert gradient_problem(eager, made) is None
    made[3] = 0
    assert "all zero" in gradient_problem(eager, made)


def test_packs_of_tensors_are_compared_as_one_by_one(monkeypatch):
    kinds = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint16, torch.bool, torch.complex64)
    ones = [noise(size % 23, size % 3).abs().to(kinds[size % len(kinds)]) for size in range(300)]
    twos = [one.clone() for one in ones]
    for number in range(0, 300, 7):
        twos[number].flatten()[:1] = 0
    ones[6].fill_(torch.nan), twos[6].fill_(torch.nan)
    pairs = [
        *zip(ones, twos, strict=True),
        (ones[3], twos[3].double()),
        (1.0, 1.0),
        (ones[8], ones[8][:-1]),
        ("a", "b"),
    ]
    for chunk in (1 << 24, 40, 1):
        monkeypatch.setattr(norms, "_CHUNK", chunk)
        assert norms.same_bits(pairs) == [same_values(*pair) for pair in pairs]
    assert 20 < norms.same_bits(pairs).count(False) < 50

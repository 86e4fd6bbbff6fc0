"""Near ties that rounding decides: right programs never fail by them, wrong ones do not hide behind them."""

import math

import pytest
import torch
from torch import nn

from collector.correctness import checking
from collector.correctness.pytorch_accuracy import Tolerance
from collector.correctness.rows import jumping, part_jumps
from collector.correctness.ties import FEW, Nudged, part_ties
from collector.vocabulary import Phase, Status
from tests.collector.correctness.test_checking import Does, checked

WIDTH, EXPERTS = 32, 8
LOW = Tolerance(1e-3, 3.0)


class Experts(nn.Module):
    """Sends each row to two of its experts; compiled, it rounds elsewhere, and may be wrong."""

    def __init__(self, wrong):
        super().__init__()
        self.router, self.wrong = nn.Linear(WIDTH, EXPERTS), wrong
        self.experts = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x):
        compiled = torch.compiler.is_compiling()
        wrong, experts, wide = self.wrong if compiled else "", self.experts, x.float() if compiled else x
        weight = self.router.weight.to(wide.dtype)
        if compiled:  # rounds as another program would
            weight = weight * (1 + torch.linspace(-1, 1, WIDTH, dtype=wide.dtype) * torch.finfo(x.dtype).eps)
        scores = wide @ weight.t()
        scores = scores if wrong == "no bias" else scores + self.router.bias.to(scores.dtype)
        shares, chosen = scores.softmax(-1).topk(2, -1)
        shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype)
        if wrong == "experts swapped":
            experts = experts.flip(0)
        made = torch.einsum("rkio,ri->rko", experts[chosen].to(wide.dtype), wide).to(x.dtype)
        return x + (made * shares[..., None]).sum(1)


class Mixture(nn.Module):
    def __init__(self, wrong="", layers=2):
        super().__init__()
        self.first, self.wrong = nn.Linear(32, WIDTH), wrong
        self.layers = nn.ModuleList(Experts(wrong) for _ in range(layers))
        self.head = nn.Linear(WIDTH, 100)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(nn.functional.layer_norm(x, (WIDTH,)))
        out = self.head(x)
        if torch.compiler.is_compiling() and self.wrong == "last column zero":
            return torch.cat([out[:, :-1], torch.zeros_like(out[:, -1:])], 1)
        return out * 1.0


def mixed(seed, wrong="", rows=8, dtype="bfloat16", phase=Phase.INFERENCE):
    torch.manual_seed(seed)
    model = Mixture(wrong)
    return checked(model, phase, dtype, inputs=torch.randn(rows, 32))


@pytest.mark.parametrize(
    ("rows", "seeds", "named"), [(8, (2, 5), 2), pytest.param(40, range(16), 6, marks=pytest.mark.slow)]
)
def test_right_mixtures_never_fail_and_name_the_rows_of_near_ties(rows, seeds, named):
    found = [mixed(seed, rows=rows) for seed in seeds]
    assert [one.failure for one in found] == [None] * len(seeds)
    told = [one.details["near_ties"]["output"] for one in found if "near_ties" in one.details]
    assert len(told) >= named
    assert all(f" of {rows} rows, " in rows_told for rows_told in told)


@pytest.mark.parametrize("wrong", ["experts swapped", "no bias", "last column zero"])
def test_wrong_mixtures_fail_beside_near_ties(wrong):
    assert mixed(0, wrong).status is Status.FAIL_ACCURACY


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "amp"])
def test_training_steps_of_mixtures_are_compared(dtype):
    right, wrong = (mixed(0, which, 32, dtype, Phase.TRAINING) for which in ("", "experts swapped"))
    assert right.status in (Status.PASS, Status.ILL_CONDITIONED), right.failure
    assert wrong.status is Status.FAIL_ACCURACY


def widely(model, x, wide):
    """The product of a model's layer, computed with the rounding of another dtype."""
    return x.to(wide) @ model.linear.weight.to(wide).t() + model.linear.bias.to(wide)


def test_an_index_that_rounding_decides_is_set_aside():
    def largest(model, x):
        return model.linear(x).argmax(-1)

    def checked_with(off):
        model = Does(
            largest, lambda model, x: widely(model, x, torch.float64).argmax(-1) + off, linear=nn.Linear(32, 50)
        )
        return checked(model, dtype="bfloat16", inputs=torch.randn(400, 32))

    right, wrong = checked_with(0), checked_with(1)
    assert (right.status, right.failure) == (Status.PASS, None)
    assert " of 400 rows, " in right.details["near_ties"]["output"]
    assert wrong.status is Status.FAIL_ACCURACY


@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.ILL_CONDITIONED), (20.0, Status.FAIL_ACCURACY)])
def test_an_output_that_is_another_one_in_each_run_is_ill_conditioned(factor, status):
    """The model turns each rounding into another output; compiled, it rounds elsewhere."""

    def elsewhere(model, x):
        return ((widely(model, x, torch.float32) * 600).sin() * factor).to(x.dtype)

    model = Does(lambda model, x: (model.linear(x) * 600).sin(), elsewhere, linear=nn.Linear(32, 64))
    found = checked(model, dtype="bfloat16")
    assert found.status is status, found.failure
    if status is Status.ILL_CONDITIONED:
        assert "output: all, since eager is another one in each run" in found.failure.message


def two_ways(number):
    """Outputs of which half of the rows go one way or the other, by a random choice of each run."""
    generator = torch.Generator().manual_seed(number)
    ways = torch.randn(2, 64, 32, generator=torch.Generator().manual_seed(99))
    chosen = torch.randint(2, (64,), generator=generator) * (torch.arange(64) % 2)
    return ways[chosen, torch.arange(64)] + 1e-3 * torch.randn(64, 32, generator=generator)


@pytest.mark.parametrize("kept_bytes", [1 << 30, 0])  # what is too large to be kept is made again
def test_rows_that_go_where_no_eager_run_goes_are_no_near_ties(kept_bytes, monkeypatch):
    monkeypatch.setattr("collector.correctness.ties._KEPT_BYTES", kept_bytes)
    outputs, reference = {"output": two_ways(0)}, {"output": two_ways(0).double()}
    third = two_ways(1)
    third[1::2] = torch.randn(32, 32)
    said = {}
    for name, made in (("right", two_ways(1)), ("a third way", third), ("far", third * 100)):
        made = {"output": made}
        ties = part_ties(outputs, made, reference, ("output",), LOW, lambda number: {"output": two_ways(number + 2)})
        said[name] = ties.problem
    assert said["right"] is None
    assert "rows of near ties are unlike every eager run" in said["a third way"]
    assert "in a row of a near tie, eager's largest" in said["far"]


def test_runs_of_eager_are_known_for_the_very_outputs_that_they_are_of():
    outputs, reference = {"output": two_ways(0)}, {"output": two_ways(0).double()}
    nudged = Nudged.of(outputs, reference, ("output",), lambda number: {"output": two_ways(number + 2)}, FEW)
    assert nudged.knows(outputs, ("output",))
    assert not nudged.knows({"output": outputs["output"].clone()}, ("output",)), "calls in a row have changed it"


def test_the_gradient_of_a_convolution_is_looked_at_by_output_channels():
    """Whose last dimension is a row of the kernel: an element here and there would be a row of its own."""
    torch.manual_seed(0)
    exact = torch.randn(32, 16, 3, 3).double()
    noisy = [exact.float() + 1e-3 * torch.randn(exact.shape) for _ in range(26)]
    flipped = noisy[0].clone()
    flipped[7] += 0.1 * torch.randn(16, 3, 3)
    path = "grad['conv.weight']"
    runs = [flipped if number % 3 == 0 else run for number, run in enumerate(noisy)]
    made = {path: flipped}
    ties = part_ties({path: noisy[0]}, made, {path: exact}, (path,), LOW, lambda number: {path: runs[number + 1]})
    assert ties.problem is None
    assert ties.told == {path: "1 of 32 rows, 0 unlike every eager run"}
    assert ties.eager[path].shape == ties.compiled[path].shape == (31, 16 * 9)
    # An output is looked at along its last dimension as before.
    assert not jumping({"output": flipped}, {"output": exact})


def noisy(exact, far=None, by=0.1):
    made = exact.float() + 1e-4 * torch.randn(exact.shape)
    if far is not None:
        made[far] += by
    return made


def test_what_is_further_off_than_eager_in_a_row_that_jumps_is_not_parted():
    def parted(eager, made, exact):
        eager, reference = {"output": eager}, {"output": exact}
        return part_jumps(eager, {"output": made}, reference, jumping(eager, reference))

    torch.manual_seed(0)
    exact = torch.randn(64, 32, dtype=torch.float64)
    overflown = noisy(exact)
    overflown[5, 0] = math.inf
    assert parted(noisy(exact, 5), noisy(exact, 5, 0.4), exact) is None
    assert parted(noisy(exact, 5), noisy(exact)[:, :16], exact) is None
    assert parted(overflown, noisy(exact), exact) is None
    assert parted(torch.arange(9), torch.arange(9), torch.arange(9).flip(0)) is None
    assert parted(noisy(exact, 5), noisy(exact, 5), exact).compiled["output"].shape == (63, 32)


@pytest.mark.parametrize(("error", "runs", "status"), [(0.0, 0, Status.PASS), (0.02, 1, Status.FAIL_ACCURACY)])
def test_eager_runs_again_only_where_more_than_its_jumps_differs(error, runs, status, monkeypatch):
    """One row is rounded to a coarse grid, which a reference in float64 rounds otherwise."""

    def round_one(model, x):
        out = model.linear(x)
        coarse = out[:1] if out.dtype is torch.float64 else out[:1] + 0.5
        return torch.cat([coarse, out[1:]])

    asked, nudged = [], checking.Nudged.of
    monkeypatch.setattr(checking.Nudged, "of", lambda *given: asked.append(given) or nudged(*given))
    torch.manual_seed(0)
    model = Does(round_one, lambda model, x: round_one(model, x) + error, linear=nn.Linear(32, 64))
    found = checked(model, inputs=torch.randn(64, 32))
    assert (found.status, len(asked)) == (status, runs), found.failure
    assert "near_ties" not in found.details


class Written(nn.Module):
    """Writes one row of each head to a long cache, of a state that turns each rounding into another one within three calls."""

    def __init__(self, wrong):
        super().__init__()
        self.linear, self.wrong = nn.Linear(64, 64, bias=False), wrong
        self.register_buffer("hidden", torch.randn(16, 64))
        self.register_buffer("keys", torch.randn(16, 512, 64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        wide = torch.float32 if torch.compiler.is_compiling() else x.dtype
        self.hidden.copy_((self.hidden.to(wide) @ self.linear.weight.to(wide).t() * 10).sin())
        row = self.hidden
        if torch.compiler.is_compiling() and self.wrong:
            row = torch.where(self.calls >= 2, row * 0, row)
        self.keys[:, 5] = row
        self.calls.add_(1)
        return x * 2


@pytest.mark.parametrize(("wrong", "status"), [(False, Status.ILL_CONDITIONED), (True, Status.FAIL_ACCURACY)])
def test_rows_of_a_cache_that_differ_in_each_run_are_no_failure(wrong, status):
    torch.manual_seed(0)
    found = checked(Written(wrong), dtype="bfloat16", inputs=torch.randn(4, 8))
    assert found.status is status, found.failure
    if wrong:
        assert "state['keys']: root mean square 0 in a row that differs in each run of eager" in found.failure.message
    else:
        assert (
            found.details["near_ties"]["state['keys']"]
            == "16 of 8192 rows, 0 unlike every eager run, 16 different in each"
        )

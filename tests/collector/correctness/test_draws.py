"""The timed program's own random numbers: constants, other shares, and another spread fail, chance does not."""

import pytest
import torch
import torch._inductor.codegen.cpp
from torch import nn

from collector.correctness.draws import wrong_draws
from collector.measure.program import SEED
from collector.vocabulary import Config, Phase, Status
from tests.collector.correctness.test_checking import Does, checked, subject_of

INDUCTOR = Config(template="triton")


class Drops(nn.Module):
    def __init__(self, probability=0.5, layers=0):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(32, 32) for _ in range(layers))
        self.probability = probability

    def forward(self, x):
        for linear in self.linears:
            x = nn.functional.dropout(linear(x), self.probability, training=True).relu()
        return nn.functional.dropout(x, self.probability, training=True) if not self.linears else x


def adds(draw):
    return Does(lambda _, x: x + draw(x))


ADDS = adds(torch.randn_like)
UNIFORM = adds(lambda x: (torch.rand_like(x) * 2 - 1) * 1.732)
WIDE = adds(lambda x: 1.5 * torch.randn_like(x))


def compared(model, program=None, phase=Phase.INFERENCE, control=None):
    """The outcome of a model whose timed program is another one, drawn from as Inductor's is.

    `control` stands for the program that draws as eager does.
    """
    subject = subject_of(model, phase, config=INDUCTOR)
    inputs = subject.inputs.args[0]
    other, third = (subject_of(one or model, phase, config=INDUCTOR, inputs=inputs) for one in (program, control))

    def compiled():
        torch.rand(7)  # from here on it draws other numbers than eager
        return other.eager()

    found = subject.outputs(subject.eager)
    runs = subject.eager_runs()
    return wrong_draws(
        lambda seed: subject.outputs(subject.eager, seed),
        lambda seed: other.outputs(compiled, seed),
        lambda seed: third.outputs(third.eager, seed),
        found,
        runs.seed_errors,
        SEED + 2,
    )


@pytest.mark.parametrize("model", [Drops(0.1), Drops(0.5, layers=3), ADDS])
def test_other_numbers_from_one_distribution_pass(model):
    assert compared(model) is None


@pytest.mark.parametrize(
    ("model", "program", "said"),
    [
        (Drops(0.5), Drops(0.0), "random in eager, and the same under"),
        (Drops(0.5), Drops(0.65), "of the values are zero, in eager"),
        (ADDS, nn.Identity(), "random in eager, and the same under"),
    ],
)
def test_another_distribution_fails(model, program, said):
    assert said in compared(model, program)


def test_size_and_mean_and_spread_are_judged_and_the_shape_is_not():
    assert compared(ADDS, UNIFORM) is None, "the same mean and variance"
    assert "the mean of random values" in compared(ADDS, adds(lambda x: torch.randn_like(x) + 0.3))
    assert "times as large" in compared(ADDS, WIDE)


@pytest.mark.parametrize("seed", range(4))
def test_a_model_with_one_random_decision_a_call_passes(seed, monkeypatch):
    monkeypatch.setattr("tests.collector.correctness.test_draws.SEED", 1000 * seed)
    assert compared(Does(lambda _, x: x * (torch.rand(1) < 0.5) + x * 0.1)) is None


def test_numbers_that_one_seed_does_not_fix_fail():
    made = {"x": torch.zeros(2000)}
    first = {"x": torch.randn(2000)}
    free = torch.Generator().manual_seed(0)

    def seeded(seed):
        return {"x": torch.randn(2000, generator=torch.Generator().manual_seed(seed))}

    said = wrong_draws(seeded, lambda seed: {"x": torch.randn(2000, generator=free)}, seeded, first, made, 0)
    assert said == "x: one seed gives other values in each call"
    assert wrong_draws(seeded, lambda seed: seeded(seed + 99), seeded, first, made, 0) is None
    noise = {"grad['weight']": torch.randn(2000), "grad['bias']": 1e-9 * torch.randn(2000)}
    assert wrong_draws(seeded, seeded, seeded, noise, ["grad['bias']"], 0) is None, "rounding noise is no draw"


def test_what_the_program_that_draws_as_eager_shows_too_is_no_draw():
    assert compared(ADDS, WIDE, control=WIDE) is None
    assert "times as large" in compared(ADDS, WIDE, control=UNIFORM)


def test_inductors_own_generator_is_checked(own_cache, monkeypatch):
    for kernels in ("CppOverrides", "CppVecOverrides"):  # as if it drew 0.75 each time
        kind = getattr(torch._inductor.codegen.cpp, kernels)
        monkeypatch.setattr(kind, "rand", staticmethod(lambda seed, offset: "0.75"))
    with torch._inductor.config.patch({"cpp.simdlen": 1, "force_disable_caches": True}):
        found = checked(nn.Sequential(nn.Linear(32, 32), Drops(0.5)), config=INDUCTOR)
    assert (found.status, found.details["random_outputs"]) == (Status.FAIL_ACCURACY, True), found.failure
    assert "random in eager, and the same under 10 seeds" in found.failure.message


@pytest.mark.parametrize(
    ("factor", "status", "phase"), [(1.0, Status.PASS, Phase.TRAINING), (1.06, Status.FAIL_ACCURACY, Phase.INFERENCE)]
)
def test_values_are_compared_where_randomness_is_an_accident(factor, status, phase):
    """One element of 20,000 is dropped in eager and none where it is compiled."""

    def drop_one(model, x):
        x = x.repeat(16, 1)
        return model.linear(x * (torch.rand_like(x) >= 5e-5))

    def drop_none(model, x):
        return model.linear(x.repeat(16, 1)) * factor

    found = checked(Does(drop_one, drop_none, linear=nn.Linear(32, 32)), phase)
    assert found.status is status, found.failure
    assert (found.details["random_outputs"], found.details["checked_by"]) == (True, "float64")


class Shifts(nn.Module):
    """Has a bias that a softmax takes away, so that its gradient is rounding alone; compiled, it rounds elsewhere."""

    def __init__(self, factor, drop=0.5):
        super().__init__()
        self.linear, self.shift = nn.Linear(32, 32, bias=False), nn.Parameter(torch.zeros(64, 1))
        nn.init.normal_(self.linear.weight)
        self.factor, self.drop = factor, drop

    def forward(self, x):
        x = nn.functional.dropout(x, self.drop) / 20
        if not torch.compiler.is_compiling():
            return (self.linear(x) + self.shift).softmax(-1) * 1.0
        wide = nn.functional.linear(x.float(), self.linear.weight.float())
        # Where the gradient is: what goes back through this has the factor.
        shift = self.shift * self.factor + (self.shift - self.shift * self.factor).detach()
        return ((wide + shift.float()).softmax(-1) * 1.0).to(x.dtype)


@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASS), (1e5, Status.FAIL_ACCURACY)])
def test_a_random_gradient_of_rounding_noise_needs_no_direction(factor, status):
    found = checked(Shifts(factor), Phase.TRAINING, "bfloat16")
    assert found.details["random_outputs"]
    assert found.status is status, found.failure

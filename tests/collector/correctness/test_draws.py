"""The timed program's own random numbers: constants, other shares, and another spread fail, chance does not."""

import pytest
import torch
from torch import nn

from collector.correctness import checking
from collector.correctness.draws import slight, wrong_draws
from collector.measure.program import SEED
from collector.vocabulary import Config, Phase, Status
from tests.collector.correctness.test_checking import Does, check_of, checked, drops, subject_of

INDUCTOR = Config(template="triton")


def adds(draw):
    return Does(lambda _, x: x + draw(x))


ADDS = adds(torch.randn_like)
UNIFORM = adds(lambda x: (torch.rand_like(x) * 2 - 1) * 1.732)
WIDE = adds(lambda x: 1.5 * torch.randn_like(x))


def compared(model, program=None, control=None, seed=SEED):
    """The outcome of a model whose timed program is another one, drawn from as Inductor's is.

    `control` stands for the program that draws as eager does.
    """
    subject = subject_of(model, config=INDUCTOR)
    inputs = subject.inputs.args[0]
    other, third = (subject_of(one or model, config=INDUCTOR, inputs=inputs) for one in (program, control))

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
        seed + 2,
    )


DEEP = nn.Sequential(nn.Linear(32, 32), drops(), nn.ReLU(), nn.Linear(32, 32), drops())

ONE_DECISION = Does(lambda _, x: x * (torch.rand(1) < 0.5) + x * 0.1)
MODELS = [(drops(probability=0.1), SEED), (DEEP, SEED), (ADDS, SEED), *((ONE_DECISION, 1000 * n) for n in range(4))]


@pytest.mark.parametrize(("model", "seed"), MODELS)
def test_other_numbers_from_one_distribution_pass(model, seed):
    assert compared(model, seed=seed) is None


def test_another_share_size_mean_or_spread_fails_and_another_shape_not():
    assert "of the values are zero, in eager" in compared(drops(), drops(probability=0.65))
    assert "random in eager, and the same under" in compared(ADDS, nn.Identity())
    assert "the mean of random values" in compared(ADDS, adds(lambda x: torch.randn_like(x) + 0.3))
    assert "times as large" in compared(ADDS, WIDE)
    assert compared(ADDS, UNIFORM) is None, "the same mean and variance"
    assert compared(ADDS, WIDE, control=WIDE) is None, "the program that draws as eager shows it too"
    assert "times as large" in compared(ADDS, WIDE, control=UNIFORM)


def test_a_loss_that_two_seeds_leave_alike_by_chance_is_as_random_as_the_rest():
    made, errors = {"loss": torch.tensor(0.5), "x": torch.ones(100)}, {"loss": 0.01, "x": 0.5}
    assert slight(made, errors) == {}
    assert slight(made, errors | {"x": 0.01}) == errors | {"x": 0.01}, "an accident of few numbers"


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


def test_a_timed_program_that_draws_no_numbers_fails_as_a_whole(monkeypatch):
    monkeypatch.setattr(checking, "_drawing_as_eager", lambda subject, *_: subject.eager)
    subject = subject_of(drops(), config=INDUCTOR)
    found = check_of(subject, lambda: subject.inputs.args[0] * 1.5).measurement
    assert (found.status, found.details["random_outputs"]) == (Status.FAIL_ACCURACY, True), found.failure
    assert "random in eager, and the same under 10 seeds" in found.failure.message


@pytest.mark.parametrize(
    ("factor", "status", "phase"), [(1.0, Status.PASS, Phase.TRAINING), (1.06, Status.FAIL_ACCURACY, Phase.INFERENCE)]
)
def test_values_are_compared_where_randomness_is_an_accident(factor, status, phase, monkeypatch):
    """One element of 20,000 is dropped in eager and none where it is compiled."""
    monkeypatch.setattr(checking, "wrong_draws", lambda *given: ", ".join(given[4]))

    def drop_one(model, x):
        x = x.repeat(16, 1)
        return model.linear(x * (torch.rand_like(x) >= 5e-5))

    def drop_none(model, x):
        return model.linear(x.repeat(16, 1)) * factor

    found = checked(Does(drop_one, drop_none, linear=nn.Linear(32, 32)), phase)
    assert found.status is status, found.failure
    assert (found.details["random_outputs"], found.details["checked_by"]) == (True, "float64")


def shifts(factor):
    """Has a bias that a softmax takes away, so that its gradient is rounding alone; compiled, it rounds elsewhere."""

    def eager(model, x):
        x = nn.functional.dropout(x, 0.5) / 20
        return (model.linear(x) + model.shift).softmax(-1) * 1.0

    def compiled(model, x):
        x = nn.functional.dropout(x, 0.5) / 20
        wide = nn.functional.linear(x.float(), model.linear.weight.float(), model.linear.bias.float())
        # Where the gradient is: what goes back through this has the factor.
        shift = model.shift * factor + (model.shift - model.shift * factor).detach()
        return ((wide + shift.float()).softmax(-1) * 1.0).to(x.dtype)

    return Does(eager, compiled, linear=nn.Linear(32, 32), shift=nn.Parameter(torch.zeros(64, 1)))


@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASS), (1e5, Status.FAIL_ACCURACY)])
def test_a_random_gradient_of_rounding_noise_needs_no_direction(factor, status):
    found = checked(shifts(factor), Phase.TRAINING, "bfloat16")
    assert found.details["random_outputs"]
    assert found.status is status, found.failure

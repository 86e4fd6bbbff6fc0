"""The timed program's own random numbers: constants, other shares, and another spread fail, chance does not."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.codegen.cpp
from torch import nn

from collector.configs.templates import resolve_config
from collector.correctness import checking
from collector.correctness.draws import SEEDS, wrong_draws
from collector.measure.program import SEED, Subject, seed_everything
from collector.vocabulary import Cell, Config, Phase, Status
from collector.zoo.spec import Built
from tests.collector.correctness.test_checking import checked, outcome_of

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


class Adds(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def compared(model, program=None, phase=Phase.INFERENCE):
    """The outcome of a model whose timed program is another one, drawn from as Inductor's is."""
    seed_everything()
    cell = Cell("tests", "tiny", phase, "float32", "cpu", 8, INDUCTOR)
    subject = Subject(cell, Built(model, (torch.randn(64, 32),), {}, lambda out, _: out.square().mean()))
    other = Subject(cell, Built(program or model, subject.inputs.args, {}, lambda out, _: out.square().mean()))

    def compiled():
        torch.rand(7)  # from here on it draws other numbers than eager
        return other.eager()

    found = subject.outputs(subject.eager)
    runs = subject.eager_runs()
    return wrong_draws(
        lambda seed: subject.outputs(subject.eager, seed),
        lambda seed: subject.outputs(compiled, seed),
        found,
        runs.seed_errors,
        SEED + 2,
    )


@pytest.mark.parametrize("model", [Drops(0.5), Drops(0.1), Drops(0.5, layers=3), Adds()])
def test_other_numbers_from_one_distribution_pass(model):
    assert compared(model) is None


@pytest.mark.parametrize(
    ("model", "program", "said"),
    [
        (Drops(0.5), Drops(0.0), "random in eager, and the same under"),
        (Drops(0.5), Drops(1.0), "random in eager, and the same under"),
        (Drops(0.5), Drops(0.4), "of the values are zero, in eager"),
        (Drops(0.5), Drops(0.65), "of the values are zero, in eager"),
        (Drops(0.5, layers=3), Drops(0.1, layers=3), "in eager"),
        (Adds(), nn.Identity(), "random in eager, and the same under"),
    ],
)
def test_another_distribution_fails(model, program, said):
    if program is not model and model.state_dict():
        program.load_state_dict(model.state_dict())
    assert said in compared(model, program)


class Uniform(nn.Module):
    def forward(self, x):
        return x + (torch.rand_like(x) * 2 - 1) * 1.732


class Shifted(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) + 0.3


class Wide(nn.Module):
    def forward(self, x):
        return x + 1.5 * torch.randn_like(x)


def test_size_and_mean_and_spread_are_judged_and_the_shape_is_not():
    assert compared(Adds(), Uniform()) is None, "the same mean and variance"
    assert "the mean of random values" in compared(Adds(), Shifted())
    assert "times as large" in compared(Adds(), Wide())


class Skips(nn.Module):
    """Drops the whole layer in half the calls: one random decision a call."""

    def forward(self, x):
        return x * (torch.rand(1) < 0.5) + x * 0.1


@pytest.mark.parametrize("seed", range(12))
def test_a_model_with_one_random_decision_a_call_passes(seed, monkeypatch):
    monkeypatch.setattr("tests.collector.correctness.test_draws.SEED", 1000 * seed)
    assert compared(Skips()) is None


def test_numbers_that_one_seed_does_not_fix_fail():
    made = {"x": torch.zeros(2000)}
    first = {"x": torch.randn(2000)}
    free = torch.Generator().manual_seed(0)

    def seeded(seed):
        return {"x": torch.randn(2000, generator=torch.Generator().manual_seed(seed))}

    said = wrong_draws(seeded, lambda seed: {"x": torch.randn(2000, generator=free)}, first, made, 0)
    assert said == "x: one seed gives other values in each call"
    assert wrong_draws(seeded, lambda seed: seeded(seed + 99), first, made, 0) is None


def test_runs_are_few_and_more_only_to_confirm():
    seeds = []

    def run(seed):
        seeds.append(seed)
        return {"x": torch.randn(2000, generator=torch.Generator().manual_seed(seed))}

    wrong_draws(run, run, {"x": torch.ones(2000)}, ["x"], 0)
    assert len(seeds) == 2 * (1 + SEEDS) + 2
    seeds.clear()
    wrong_draws(run, lambda seed: {"x": 2 * run(seed)["x"]}, {"x": torch.ones(2000)}, ["x"], 0)
    assert len(seeds) == 4 * (1 + SEEDS) + 2


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize(("broken", "status"), [(False, Status.PASS), (True, Status.FAIL_ACCURACY)])
def test_inductors_own_generator_is_checked(broken, status, phase, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    if broken:  # as if it drew 0.75 each time
        for kernels in ("CppOverrides", "CppVecOverrides"):
            monkeypatch.setattr(
                getattr(torch._inductor.codegen.cpp, kernels), "rand", staticmethod(lambda seed, offset: "0.75")
            )
    with torch._inductor.config.patch({"cpp.simdlen": 1, "cpp.vec_isa_ok": True, "force_disable_caches": True}):
        torch._dynamo.reset()
        seed_everything()
        cell = Cell("tests", "tiny", phase, "float32", "cpu", 8, INDUCTOR)
        model = nn.Sequential(nn.Linear(32, 32), Drops(0.5))
        subject = Subject(cell, Built(model, (torch.randn(64, 32),), {}, lambda out, _: out.square().mean()))
        effective = resolve_config(INDUCTOR, "cpu")
        found = outcome_of(cell, subject, subject.compiled(effective), effective)
    assert found.status is status, found.failure
    assert found.details["random_outputs"]
    if broken:
        assert "random in eager, and the same under 10 seeds" in found.failure.message


def test_other_back_ends_are_not_asked(monkeypatch):
    monkeypatch.setattr(checking, "wrong_draws", lambda *_: "asked")
    assert checked(Drops(0.5)).failure is None

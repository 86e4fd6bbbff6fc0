"""Suite modern on a CPU: every kind runs in both phases, and its parts do what they are named for."""

import pytest

from collector.measure.cell import measure
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from collector.zoo.catalog.newer_suites import MODERN_MODELS as MODELS
from jobs.plan.planning import default_dtype
from tests.collector.zoo.conftest import run, tensors

torch = pytest.importorskip("torch")

READY = [spec for spec in MODELS if not spec.missing()]


@pytest.mark.parametrize("spec", READY, ids=str)
def test_it_is_finite_and_a_training_step_reaches_every_parameter(build, spec):
    built = build(str(spec))
    assert all(value.isfinite().all() for value in tensors(run(built)) if value.is_floating_point())
    if Phase.TRAINING in spec.phases:
        built = build(str(spec), Phase.TRAINING)
        built.loss(built.model(*built.args), built.targets).backward()
        for name, parameter in built.model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


@pytest.mark.slow
@pytest.mark.parametrize("spec", READY, ids=str)
def test_every_model_compiles_on_a_cpu_and_is_compared(spec):
    size = spec.batch_size(Phase.INFERENCE, "cpu")
    dtype = default_dtype(spec, "cpu", Phase.INFERENCE)
    cell = Cell(spec.suite, spec.name, Phase.INFERENCE, dtype, "cpu", size, Config(template="triton"))
    torch._dynamo.reset()
    found = measure(cell, spec.build, Settings(rounds=3, warmups=1, sample_limit_s=5)).measurement
    assert (found.status, found.failure, found.metrics["graph_breaks"]) == (Status.PASS, None, 0)
    # The optimiser's step: its result, and four tensors of state for each of 28 parameters.
    assert found.details["tensors_compared"] == (1 + 4 * 28 if spec.name == "adamw_step" else 1)

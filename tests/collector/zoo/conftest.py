import pytest

from collector.measure.cell import measure
from collector.measure.program import seed_everything
from collector.settings import Settings
from collector.vocabulary import Cell, Phase, Status
from collector.zoo.registry import find
from jobs.plan.planning import default_dtype


@pytest.fixture(scope="session")
def build():
    """Builds a model by suite/name as the collector does: seeded, on the CPU, at its size for a CPU."""

    def build(path, phase=Phase.INFERENCE, batch_size=None):
        spec = find(*path.split("/"))
        if spec.missing():
            pytest.skip(f"{path} needs more: pip install {' '.join(spec.missing())}")
        seed_everything()
        built = spec.build(batch_size or spec.batch_size(phase, "cpu"), phase, "cpu")
        built.model.train(phase is Phase.TRAINING)
        return built

    return build


def tensors(value):
    import torch

    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def measured(spec, config, phase=Phase.INFERENCE):
    """The measurement of a model of the zoo, which passed without a graph break or a recompilation."""
    import torch

    few = Settings(rounds=3, warmups=1, sample_limit_s=5)
    dtype = default_dtype(spec, "cpu", phase)
    cell = Cell(spec.suite, spec.name, phase, dtype, "cpu", spec.batch_size(phase, "cpu"), config)
    torch._dynamo.reset()
    found = measure(cell, spec.build, few).measurement
    assert (found.status, found.failure) == (Status.PASS, None)
    assert (found.metrics["graph_breaks"], found.metrics["recompiles"]) == (0, 0)
    return found

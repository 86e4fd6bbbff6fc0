import random

import pytest

from collector.vocabulary import Phase
from collector.zoo.registry import find


def seed():
    import numpy
    import torch

    torch.manual_seed(1337)
    random.seed(1337)
    numpy.random.seed(1337)


@pytest.fixture(scope="session")
def build():
    """Builds a model by suite/name as the collector does: seeded, on the CPU, at its size for a CPU."""

    def build(path, phase=Phase.INFERENCE, batch_size=None):
        spec = find(*path.split("/"))
        if spec.missing():
            pytest.skip(f"{path} needs more: pip install {' '.join(spec.missing())}")
        seed()
        built = spec.build(batch_size or spec.batch_size(phase, "cpu"), phase, "cpu")
        built.model.train(phase is Phase.TRAINING)
        return built

    return build


def run(built):
    import torch

    with torch.no_grad():
        return built.model(*built.args, **built.kwargs)


def tensors(value):
    import torch

    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]

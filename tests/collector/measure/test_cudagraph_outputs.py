"""Outputs that are cudagraph buffers: cloned they keep their values, not cloned the next replay takes them away.

Needs a GPU, torch and pytest, and nothing that the rest of the suite needs:

    python3 -m pytest -c /dev/null --rootdir . --noconftest -p no:cacheprovider -m gpu tests/collector/measure
"""

import pytest
import torch
from torch import nn

from collector.measure.program import Subject
from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Phase
from collector.zoo.spec import Built

WITH_CUDAGRAPHS = [Config(mode="reduce-overhead"), Config(template="cudagraphs")]


#: What a model may return its tensor in, and where that is found; `test_kinds.py` has all kinds of structures.
STRUCTURES = {
    "tensor": (lambda tensor: tensor, "output"),
    "nested": (lambda tensor: [{"boxes": (tensor, tensor.sum(), None)}], "[0]['boxes'][0]"),
}
#: Every structure under the mode; the template is the same program, so one structure is enough for it.
REPLAYED = [(name, WITH_CUDAGRAPHS[0]) for name in STRUCTURES] + [("tensor", WITH_CUDAGRAPHS[1])]


class Wrapping(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return self.wrap(self.linear(x).relu())


def made_ready(structure, config, phase):
    """The model and its compiled form, called so often; where its tensor is found.

    The first call warms up, the second records the cudagraph, and from the third on it is replayed.
    """
    wrap, path = STRUCTURES[structure]
    torch._dynamo.reset()
    torch.manual_seed(0)
    cell = Cell("tests", structure, phase, "float32", "cuda", 4, config)
    subject = Subject(cell, Built(Wrapping(wrap), (torch.randn(4, 16),), {}, lambda made, _: made.square().mean()))
    call = subject.compiled(resolve_config(config, "cuda"))
    for _ in range(4):
        call()
    return subject, call, path


def change_weights(subject):
    """So that the next replay writes other values into the same buffers; in place, as a cudagraph reads it."""
    with torch.no_grad():
        subject.model.linear.bias.add_(1.0)


def keeps_its_values(structure, config, phase=Phase.INFERENCE):
    """Whether a snapshot of the compiled outputs still holds, after another call, what eager had made."""
    subject, call, path = made_ready(structure, config, phase)
    wanted = subject.outputs(subject.eager)
    first = subject.outputs(call)
    change_weights(subject)
    second = subject.outputs(call)
    assert first.keys() == second.keys() == wanted.keys()
    path = path if phase is Phase.INFERENCE else "loss"
    assert not torch.allclose(second[path], first[path])
    tensors = [name for name, value in wanted.items() if isinstance(value, torch.Tensor)]
    return all(torch.allclose(first[name], wanted[name], atol=1e-3) for name in tensors)


def named(value):
    return getattr(value, "name", value)


@pytest.mark.gpu
@pytest.mark.parametrize(("structure", "config"), REPLAYED, ids=named)
def test_cloned_outputs_keep_their_values_over_the_next_replay(structure, config):
    assert keeps_its_values(structure, config)


@pytest.mark.gpu
@pytest.mark.parametrize("config", WITH_CUDAGRAPHS, ids=named)
def test_the_loss_and_gradients_keep_their_values_over_the_next_step(config):
    assert keeps_its_values("tensor", config, Phase.TRAINING)

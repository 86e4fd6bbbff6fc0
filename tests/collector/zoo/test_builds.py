"""Models as they are built: deterministic, complete, finite in both phases."""

import pytest

from collector.vocabulary import Phase
from collector.zoo.registry import all_models, find
from tests.collector.zoo.conftest import run, tensors

torch = pytest.importorskip("torch")

CHEAP = (
    "huggingface/ElectraForCausalLM",
    "huggingface/MobileNetV2ForImageClassification",
    "torchbench/speech_transformer",
)
ON_CPU = [str(spec) for spec in all_models() if spec.supports(Phase.INFERENCE, "cpu")]


def values(built):
    named = [*built.model.state_dict().items(), *built.kwargs.items()]
    return [tensor for _, tensor in named] + tensors((built.args, built.targets))


@pytest.mark.parametrize("path", CHEAP)
def test_one_seed_gives_one_model_whose_training_step_drops_nothing(build, path):
    built, again = (build(path, Phase.TRAINING, batch_size=2) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(values(built), values(again), strict=True))
    assert {p.dtype for p in built.model.parameters()} == {torch.float32}
    assert {t.device.type for t in values(built)} == {"cpu"}
    # Batch norms normalise by the batch in this mode, so that only dropout could make the two differ.
    losses = [built.loss(built.model(*built.args, **built.kwargs), built.targets) for _ in range(2)]
    assert losses[0].shape == ()
    assert torch.equal(*losses)
    losses[0].backward()
    for name, parameter in built.model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.slow
@pytest.mark.parametrize("path", ON_CPU)
def test_every_model_runs_in_eager_mode_on_a_cpu_and_trains_if_it_can(build, path):
    assert all(t.isfinite().all() for t in tensors(run(build(path))) if t.is_floating_point())
    if not find(*path.split("/")).supports(Phase.TRAINING, "cpu"):
        return
    built = build(path, Phase.TRAINING)
    built.loss(built.model(*built.args, **built.kwargs), built.targets).backward()
    gradients = [p.grad for p in built.model.parameters() if p.grad is not None]
    assert gradients
    assert all(g.isfinite().all() for g in gradients)

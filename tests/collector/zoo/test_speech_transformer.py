import pytest

from collector.vocabulary import Phase
from tests.collector.zoo.conftest import run

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from collector.zoo.builders import speech_transformer  # noqa: E402


def test_it_has_the_size_of_the_original_and_divides_by_a_numpy_scalar(build):
    model = build("torchbench/speech_transformer").model
    norm, attention, feed_forward = 2 * 512, 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512
    encoder = 320 * 512 + 512 + norm + 6 * (attention + feed_forward + 2 * norm)
    decoder = 4233 * 512 + 6 * (2 * attention + feed_forward + 3 * norm)
    assert sum(p.numel() for p in model.parameters()) == encoder + decoder
    temperatures = [
        m.temperature for m in model.to(torch.bfloat16).modules() if isinstance(m, speech_transformer._ScaledDotProduct)
    ]
    assert len(temperatures) == 6 + 2 * 6
    assert all(type(t) is np.float64 and t == 8.0 for t in temperatures)


def test_scores_and_gold_have_one_character_more_than_the_targets(build):
    built = build("torchbench/speech_transformer", batch_size=3)
    scores, gold = run(built)
    targets = built.args[2]
    assert scores.shape == (3, targets.size(1) + 1, speech_transformer.VOCABULARY)
    for row, target in zip(gold, targets, strict=True):
        spoken = target[target != speech_transformer.IGNORED]
        assert row[: len(spoken)].equal(spoken)
        assert row[len(spoken)] == speech_transformer.END
        assert row[len(spoken) + 1 :].eq(speech_transformer.IGNORED).all()


def test_padding_does_not_change_what_is_heard(build):
    built = build("torchbench/speech_transformer", batch_size=2)
    frames, lengths, targets = built.args
    length = int(lengths[1])
    assert length < frames.size(1)
    alone = (frames[1:, :length], lengths[1:], targets[1:, targets[1] != speech_transformer.IGNORED])
    with torch.no_grad():
        together, single = built.model(frames, lengths, targets)[0][1:], built.model(*alone)[0]
    torch.testing.assert_close(together[:, : single.size(1)], single, atol=1e-4, rtol=1e-4)


def test_a_character_does_not_depend_on_those_after_it(build):
    built = build("torchbench/speech_transformer")
    frames, lengths, targets = built.args
    other = targets.clone()
    other[0, -1] = 7 if int(targets[0, -1]) != 7 else 8
    with torch.no_grad():
        before, after = built.model(frames, lengths, targets)[0], built.model(frames, lengths, other)[0]
    torch.testing.assert_close(before[:, :-1], after[:, :-1])
    assert not torch.allclose(before[:, -1], after[:, -1])


@pytest.mark.slow
def test_reading_lengths_breaks_the_graph(build):
    built = build("torchbench/speech_transformer", Phase.INFERENCE)
    torch._dynamo.reset()
    with torch.no_grad():
        explained = torch._dynamo.explain(built.model)(*built.args)
    assert explained.graph_break_count >= 2
    torch._dynamo.reset()

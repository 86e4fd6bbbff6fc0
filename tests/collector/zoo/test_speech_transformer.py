import pytest

torch = pytest.importorskip("torch")
from collector.zoo.builders import speech_transformer  # noqa: E402


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

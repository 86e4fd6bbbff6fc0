"""The suite of language models: its sizes, and that a decode step computes what the whole text would give."""

from copy import deepcopy

import pytest

from collector.vocabulary import Config, Phase
from collector.zoo.builders import transformers_models
from collector.zoo.registry import find, select
from tests.collector.zoo.conftest import measured

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


DECODES = [spec.name for spec in select(in_suites=["llm"], tagged=["decode"]) if "text" in spec.tags]


@pytest.mark.parametrize("name", DECODES)
def test_a_step_gives_the_scores_of_the_whole_text_at_two_positions(monkeypatch, build, name):
    prompts = []
    monkeypatch.setattr(transformers_models, "_PIECE", 8)  # a quarter of the prompt
    tokens = transformers_models._tokens
    monkeypatch.setattr(transformers_models, "_tokens", lambda *words: prompts.append(tokens(*words)) or prompts[-1])
    built = build(f"llm/{name}")
    [position], token = built.args, built.kwargs["input_ids"]
    assert int(position) == prompts[0].shape[1]
    is_all_states = name == "mamba2-130m.decode"  # whose caches the end of the prompt fills
    text = torch.cat([prompts[0][:, -8 if is_all_states else 0 :], token, token.flip(0)], dim=1)
    with torch.no_grad():
        whole = built.model.model(text, use_cache=False).logits
        first = built.model(position, input_ids=token)
        second = built.model(position + 1, input_ids=token.flip(0))
    torch.testing.assert_close(first[:, 0], whole[:, -2], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(second[:, 0], whole[:, -1], rtol=1e-3, atol=1e-4)


def test_steps_and_prefills_take_their_cache_along(build):
    built = build("llm/gemma-2-2b.decode")
    moved, [position], token = deepcopy(built.model).to("meta"), built.args, built.kwargs["input_ids"]
    with torch.no_grad():
        assert moved(position.to("meta"), input_ids=token.to("meta")).device.type == "meta"
    built = build("llm/Qwen3.5-0.8B.prefill")
    with torch.no_grad():
        made = built.model(*built.args)
    assert {name.rpartition("_")[0] for name in made} > {"keys_3", "values_3", "recurrent_states_0", "conv_states_2"}
    built = build("llm/Llama-3.2-1B.prefill", Phase.TRAINING)
    made = built.model(**built.kwargs)
    assert built.loss(made, None).item() > 0
    assert not {"cache", "past_key_values"}.intersection(made)
    built = build("llm/whisper-large-v3-turbo.decode")
    with torch.no_grad():
        scores = built.model(*built.args, **built.kwargs)
        built.model.get_buffer("cache_2_values").mul_(-1)  # of the encoder's output, behind two layers of tokens
        assert not torch.allclose(built.model(*built.args, **built.kwargs), scores)


def test_forms_of_attention_that_compute_the_same_agree(build):
    def output(name):
        built = build(f"llm/{name}")
        with torch.no_grad():
            return built.model(*built.args)

    torch.testing.assert_close(output("FlexAttention.causal"), output("SDPA.causal_gqa"))
    sliding = output("SDPA.sliding_window_mask")
    torch.testing.assert_close(output("FlexAttention.sliding_window"), sliding)
    assert not torch.allclose(output("SDPA.causal_gqa"), sliding)


def test_a_measured_step_compares_its_cache_and_never_compiles_again():
    found = measured(find("llm", "gemma-2-2b.decode"), Config(backend="eager"))
    # The scores; keys, values and length of two layers.
    assert found.details["tensors_compared"] == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", [spec.name for spec in select(in_suites=["llm"])])
def test_every_model_compiles_on_a_cpu_and_a_second_position_does_not(build, name):
    measured(find("llm", name), Config(template="triton"))
    if not name.endswith(".decode"):
        return
    built, again = build(f"llm/{name}"), build(f"llm/{name}")
    torch._dynamo.reset()
    compiled, [position] = torch.compile(built.model, dynamic=False), built.args
    with torch.no_grad():
        compiled(position, **built.kwargs)
        again.model(position, **again.kwargs)
        with torch._dynamo.config.patch(error_on_recompile=True):
            scores = compiled(position + 1, **built.kwargs)
        torch.testing.assert_close(scores, again.model(position + 1, **again.kwargs), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Llama-3.2-1B.prefill", "gpt-oss-20b-4layers.prefill", "SDPA.causal_gqa"])
def test_models_train_on_a_cpu(name):
    found = measured(find("llm", name), Config(template="triton"), Phase.TRAINING)
    assert found.details["tensors_compared"] > 2

"""Suites llm and modern: models as they are served and trained today.

Everything is built from configuration classes. The sizes are those of `config.json` in the model's repository on the
Hugging Face Hub, which each entry names, except rotary frequencies, which are constants and change no kernel. A CPU gets
few layers of small width, for checking that a kind of model compiles.

PyTorch's list (benchmarks/dynamo/huggingface_llm_models.py) has Llama-3.2-1B, gemma-2-2b, Qwen3-0.6B and whisper-tiny under
their repositories' names. It times `generate` with 2000 new tokens as a whole. Here the two programs that `generate` calls
are separate models, and their names differ from PyTorch's, whose rows must not join them.

Weights are random; each builder names the source of its sizes. Notes say what is simplified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.vocabulary import AS_IS, Phase
from collector.zoo.catalog.pytorch_suites import QWEN3_06B
from collector.zoo.spec import ACCELERATOR, ModelSpec, same_in_both_phases

LLM = "llm"
_NEEDS = ("torch", "transformers")
_BUILDERS = "collector.zoo.builders"
#: The length of a prompt, about the 1000 tokens of PyTorch's prompt.
_LENGTH, _CPU_LENGTH = 1024, 32
_TINY = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
_LLAMA_32_1B = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
_QWEN3_06B = {**QWEN3_06B, "vocab_size": 151936, "max_position_embeddings": 40960}
_QWEN35_08B = {
    "vocab_size": 248320,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
}
_TINY_QWEN35 = {
    **_TINY,
    "num_hidden_layers": 4,  # three of linear attention and one of full attention
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_GEMMA_2_2B = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
#: Four of 48 layers.
_QWEN3_30B_A3B = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "max_position_embeddings": 40960,
}
_TINY_QWEN3_MOE = {**_TINY, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2}
#: Four of 24 layers.
_GPT_OSS_20B = {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
}
_TINY_GPT_OSS = {**_TINY, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 16}
_MAMBA2_130M = {
    "vocab_size": 50288,
    "hidden_size": 768,
    "num_hidden_layers": 24,
    "num_heads": 24,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 1,
    "expand": 2,
    "conv_kernel": 4,
    "chunk_size": 256,
    "tie_word_embeddings": True,
}
_TINY_MAMBA2 = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_heads": 8,
    "head_dim": 16,
    "state_size": 16,
    "chunk_size": 16,
}
_WHISPER_TURBO = {
    "vocab_size": 51866,
    "num_mel_bins": 128,
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 4,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "pad_token_id": 50257,
    "tie_word_embeddings": True,
}
_TINY_WHISPER = {
    "vocab_size": 512,
    "num_mel_bins": 16,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "pad_token_id": 0,
}


def _language_model(
    name: str,
    architecture: str,
    config: Mapping[str, Any],
    tiny: Mapping[str, Any],
    source: str,
    *,
    prefill: int = 4,
    training: int | None = 2,
    notes: str = "",
    decode: Mapping[str, Any] = {},
) -> tuple[ModelSpec, ModelSpec]:
    """Return a model's prefill, which is also trained if `training` gives a batch size, and its decode step.

    `decode` has the entries of the configuration that differ for the decode step.
    """
    params = {
        "architecture": architecture,
        "config": config,
        "cpu_config": tiny,
        "length": _LENGTH,
        "cpu_length": _CPU_LENGTH,
    }
    sizes = {Phase.INFERENCE: {ACCELERATOR: prefill, "cpu": 1}}
    if training:
        sizes[Phase.TRAINING] = {ACCELERATOR: training, "cpu": 1}
    notes = f"sizes of {source}{'; ' if notes else ''}{notes}"
    on_cpu = f"on cpu {tiny['num_hidden_layers']} layers of width {tiny['hidden_size']}, "
    return (
        ModelSpec(
            suite=LLM,
            name=f"{name}.prefill",
            builder=f"{_BUILDERS}.transformers_models:build_prefill",
            batch_sizes=sizes,
            input_note=f"seq {_LENGTH}, scores of the last token, cache; {on_cpu}seq {_CPU_LENGTH}",
            needs=_NEEDS,
            tags=frozenset({"text", "prefill"}),
            notes=notes,
            params=params,
        ),
        ModelSpec(
            suite=LLM,
            name=f"{name}.decode",
            builder=f"{_BUILDERS}.transformers_models:build_decode",
            batch_sizes={Phase.INFERENCE: {ACCELERATOR: 8, "cpu": 2}},
            input_note=f"1 token behind {_LENGTH} in a static cache; {on_cpu}behind {_CPU_LENGTH}",
            needs=_NEEDS,
            tags=frozenset({"text", "decode"}),
            notes=notes,
            params={**params, "config": {**config, **decode}},
        ),
    )


def _whisper(part: str, input_note: str, tag: str, **params: Any) -> ModelSpec:
    return ModelSpec(
        suite=LLM,
        name=f"whisper-large-v3-turbo.{part}",
        builder=f"{_BUILDERS}.transformers_models:build_whisper_{part}",
        batch_sizes={Phase.INFERENCE: {ACCELERATOR: 8, "cpu": 1}},
        input_note=f"{input_note}; on cpu 2 layers of width 64",
        needs=_NEEDS,
        tags=frozenset({"audio", tag}),
        notes="sizes of openai/whisper-large-v3-turbo",
        params={"config": _WHISPER_TURBO, "cpu_config": _TINY_WHISPER, **params},
    )


def _attention(name: str, form: str, notes: str, *, trains_on_cpu: bool) -> ModelSpec:
    training = {ACCELERATOR: 4, "cpu": 2} if trains_on_cpu else {ACCELERATOR: 4}
    return ModelSpec(
        suite=LLM,
        name=name,
        builder=f"{_BUILDERS}.modern_models:build_attention",
        batch_sizes={Phase.INFERENCE: {ACCELERATOR: 4, "cpu": 2}, Phase.TRAINING: training},
        input_note="seq 2048, 32 heads of 64; on cpu seq 256, 4 heads",
        tags=frozenset({"attention"}),
        notes=notes,
        params={"form": form, "tokens": 2048, "window": 512, "cpu_tokens": 256, "cpu_window": 64},
    )


_EIGHT = "8 heads of keys and values, as in meta-llama/Llama-3.2-1B"
_SLIDING = f"sees 512 tokens; {_EIGHT}"
_FLEX = "; eager, it compiles a graph of its own, which is counted; torch has no backward pass of it for a CPU"

LLM_MODELS: tuple[ModelSpec, ...] = (
    *_language_model("Llama-3.2-1B", "LlamaForCausalLM", _LLAMA_32_1B, _TINY, "meta-llama/Llama-3.2-1B"),
    *_language_model("Qwen3-0.6B", "Qwen3ForCausalLM", _QWEN3_06B, _TINY, "Qwen/Qwen3-0.6B", prefill=8, training=4),
    *_language_model(
        "Qwen3.5-0.8B",
        "Qwen3_5ForCausalLM",
        _QWEN35_08B,
        _TINY_QWEN35,
        "Qwen/Qwen3.5-0.8B's language model",
        training=None,
        notes="linear attention in three layers of four, in transformers' own operators; training takes too long to compile",
    ),
    *_language_model("gemma-2-2b", "Gemma2ForCausalLM", _GEMMA_2_2B, _TINY, "google/gemma-2-2b"),
    *_language_model(
        "Qwen3-30B-A3B-4layers",
        "Qwen3MoeForCausalLM",
        _QWEN3_30B_A3B,
        _TINY_QWEN3_MOE,
        "Qwen/Qwen3-30B-A3B",
        notes="4 of its 48 layers; 8 of 128 experts a token",
    ),
    *_language_model(
        "gpt-oss-20b-4layers",
        "GptOssForCausalLM",
        _GPT_OSS_20B,
        _TINY_GPT_OSS,
        "openai/gpt-oss-20b",
        notes="4 of its 24 layers; 4 of 32 experts a token; every second layer sees 128 tokens; weights not in MXFP4",
    ),
    *_language_model(
        "mamba2-130m",
        "Mamba2ForCausalLM",
        _MAMBA2_130M,
        _TINY_MAMBA2,
        "state-spaces/mamba2-130m",
        prefill=1,
        training=None,
        notes="a state-space model in transformers' own operators, whose eager form is too large to train; the last 128 "
        "tokens of the prompt fill what decode begins with",
        decode={"chunk_size": 32},  # the prompt that fills the cache is padded to whole chunks
    ),
    _whisper("encoder", "30 s of sound", "encoder"),
    _whisper("decode", "1 token behind 32 in a static cache", "decode", length=32),
    _attention("FlexAttention.causal", "flex_causal", _EIGHT + _FLEX, trains_on_cpu=False),
    _attention("FlexAttention.sliding_window", "flex_sliding_window", _SLIDING + _FLEX, trains_on_cpu=False),
    _attention("SDPA.causal", "sdpa", "as many heads of keys as of queries", trains_on_cpu=True),
    _attention("SDPA.causal_gqa", "sdpa_gqa", _EIGHT, trains_on_cpu=True),
    _attention("SDPA.sliding_window_mask", "sdpa_sliding_window_mask", _SLIDING, trains_on_cpu=True),
)


MODERN = "modern"


def _model(
    name: str,
    builder: str,
    sizes: Mapping[Phase, Mapping[str, int]],
    note: str,
    *,
    needs: tuple[str, ...] = ("torch",),
    dtypes: tuple[str, ...] = (),
    notes: str = "",
) -> ModelSpec:
    return ModelSpec(
        suite=MODERN,
        name=name,
        builder=f"{_BUILDERS}.{builder}",
        batch_sizes=sizes,
        input_note=note,
        needs=needs,
        dtypes=dtypes,
        notes=notes,
    )


def _inference(accelerator: int, cpu: int) -> Mapping[Phase, Mapping[str, int]]:
    return {Phase.INFERENCE: {ACCELERATOR: accelerator, "cpu": cpu}}


MODERN_MODELS: tuple[ModelSpec, ...] = (
    _model(
        "unet",
        "modern_models:build_unet",
        same_in_both_phases(4, 1),
        "latents of 64x64, 77 tokens of text; on cpu 8x8",
        notes="a simplification with Stable Diffusion 1.5's widths: one residual and one attention block a level; 210 of its "
        "860 million parameters",
    ),
    _model(
        "DiT-B-2",
        "modern_models:build_dit",
        same_in_both_phases(32, 2),
        "latents of 32x32; on cpu 8x8",
        notes="written from the paper; positions are learned, patches stay apart",
    ),
    _model(
        "sam_vit_b_encoder",
        "transformers_models:build_sam_encoder",
        same_in_both_phases(4, 1),
        "3x1024x1024; on cpu 3x64x64",
        needs=("torch", "transformers"),
    ),
    _model(
        "dlrm",
        "modern_models:build_dlrm",
        same_in_both_phases(2048, 8),
        "13 numbers and 26 bags of 4 items",
        notes="MLPerf's layers; tables of 100,000 rows",
    ),
    _model(
        "gcn_arxiv",
        "modern_models:build_gcn",
        same_in_both_phases(1, 1),
        "169,343 nodes, 1,166,243 random edges; on cpu 200 and 1000",
        # Sums over edges in 16 bits depend on their order by more than any tolerance.
        dtypes=(AS_IS, "float32", "amp", "amp_bfloat16"),
        notes="sums over edges need float32; random edges, so even degrees",
    ),
    _model(
        "llama_mlp_int8",
        "modern_models:build_int8",
        _inference(1, 1),
        "one token of 2048 states; on cpu 64",
        dtypes=(AS_IS,),
        notes="the gated layers of Llama-3.2-1B alone; int8 weights, bfloat16 states: not cast",
    ),
    _model(
        "adamw_step",
        "modern_models:build_adamw",
        _inference(1, 1),
        "gradients of GPT-2 small's 148 parameters",
        dtypes=(AS_IS, "float32"),
        notes="the optimiser's step alone, in float32; its state is compared",
    ),
)

"""Suite modern: diffusion, segmentation, recommendation, graphs, quantised layers and an optimiser's step.

Random weights; each builder names the source of its sizes. What is simplified says so in the notes. A CPU gets few layers of
small width, for checking that a kind of model compiles.
"""

from __future__ import annotations

from collections.abc import Mapping

from collector.vocabulary import AS_IS, Phase
from collector.zoo.spec import ModelSpec, same_in_both_phases

SUITE = "modern"
_BUILDERS = "collector.zoo.builders.modern"


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
        suite=SUITE,
        name=name,
        builder=f"{_BUILDERS}.{builder}",
        batch_sizes=sizes,
        input_note=note,
        needs=needs,
        dtypes=dtypes,
        notes=notes,
    )


def _inference(accelerator: int, cpu: int) -> Mapping[Phase, Mapping[str, int]]:
    return {Phase.INFERENCE: {"cuda": accelerator, "cpu": cpu}}


MODELS: tuple[ModelSpec, ...] = (
    _model(
        "unet",
        "diffusion:build_unet",
        same_in_both_phases(4, 1),
        "latents of 64x64, 77 tokens of text; on cpu 8x8",
        notes="a simplification with Stable Diffusion 1.5's widths: one residual and one attention block a level; 210 of its "
        "860 million parameters",
    ),
    _model(
        "DiT-B-2",
        "diffusion:build_dit",
        same_in_both_phases(32, 2),
        "latents of 32x32; on cpu 8x8",
        notes="written from the paper; positions are learned, patches stay apart",
    ),
    _model(
        "sam_vit_b_encoder",
        "segmentation:build",
        same_in_both_phases(4, 1),
        "3x1024x1024; on cpu 3x64x64",
        needs=("torch", "transformers"),
    ),
    _model(
        "dlrm",
        "tables:build_dlrm",
        same_in_both_phases(2048, 8),
        "13 numbers and 26 bags of 4 items",
        notes="MLPerf's layers; tables of 100,000 rows",
    ),
    _model(
        "gcn_arxiv",
        "tables:build_gcn",
        same_in_both_phases(1, 1),
        "169,343 nodes, 1,166,243 random edges; on cpu 200 and 1000",
        # Sums over edges in 16 bits depend on their order by more than any tolerance.
        dtypes=(AS_IS, "float32", "amp", "amp_bfloat16"),
        notes="sums over edges need float32; random edges, so even degrees",
    ),
    _model(
        "llama_mlp_int8",
        "steps:build_int8",
        _inference(1, 1),
        "one token of 2048 states; on cpu 64",
        dtypes=(AS_IS,),
        notes="the gated layers of Llama-3.2-1B alone; int8 weights, bfloat16 states: not cast",
    ),
    _model(
        "adamw_step",
        "steps:build_adamw",
        _inference(1, 1),
        "gradients of GPT-2 small's 148 parameters",
        dtypes=(AS_IS, "float32"),
        notes="the optimiser's step alone, in float32; its state is compared",
    ),
)

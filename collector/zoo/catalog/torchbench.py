"""Suite torchbench: the three models by which PyTorch's pull request for graph partition is known.

All three hold something on the CPU in the middle of their program, for which cudagraphs give the whole graph up unless
`graph_partition` cuts it: a NumPy scalar, a tensor of grid sizes, index tensors of data-dependent length.
"""

from __future__ import annotations

from collector.vocabulary import Phase
from collector.zoo.spec import ModelSpec, same_in_both_phases

SUITE = "torchbench"
_TAG = "graph-partition"

MODELS: tuple[ModelSpec, ...] = (
    ModelSpec(
        suite=SUITE,
        name="speech_transformer",
        builder="collector.zoo.builders.speech_transformer:build",
        batch_sizes={Phase.INFERENCE: {"cuda": 1, "cpu": 1}, Phase.TRAINING: {"cuda": 32, "cpu": 2}},
        input_note="160 frames of 320 features, 20 characters",
        needs=("torch", "numpy"),
        tags=frozenset({_TAG, "speech"}),
        notes="written from the paper, on random frames: breaks the graph 5 times where PyTorch lists 10; its attention divides "
        "by a NumPy scalar, which the compiler sees as a tensor on the CPU",
    ),
    ModelSpec(
        suite=SUITE,
        name="vision_maskrcnn",
        builder="collector.zoo.builders.maskrcnn:build",
        batch_sizes=same_in_both_phases(1, None),
        input_note="one image, 3x480x640, resized to 3x800x1066",
        needs=("torch", "torchvision"),
        # torchvision's RoI align has no bfloat16 kernel; under autocast it runs in float32. PyTorch forces float16.
        dtypes=("float32", "float16", "amp"),
        tags=frozenset({_TAG, "vision"}),
        notes="too slow on a CPU; many graph breaks, and detections that depend on random scores",
    ),
    ModelSpec(
        suite=SUITE,
        name="yolov3",
        builder="collector.zoo.builders.yolov3:build",
        batch_sizes=same_in_both_phases(8, 1),
        input_note="3x384x512; on cpu 3x192x256",
        tags=frozenset({_TAG, "vision"}),
        notes="a re-implementation whose loss compares dense targets, where YOLO's matches objects to anchors; every call in "
        "eval mode stores a tensor of grid sizes on the CPU",
    ),
)

import pytest

from db.importing.rows import Target
from db.importing.tables import parse_name


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        (
            "inductor_with_cudagraphs_freezing_autotune_timm_models_amp_training_cuda_h100_performance",
            (
                "inductor_with_cudagraphs_freezing_autotune",
                "timm_models",
                "amp",
                "training",
                "cuda_h100",
                "performance",
            ),
        ),
        (
            "inductor_no_cudagraphs_huggingface_float32_inference_cpu_x86_zen_accuracy",
            ("inductor_no_cudagraphs", "huggingface", "float32", "inference", "cpu_x86_zen", "accuracy"),
        ),
        (
            "inductor_max_autotune_torchbench_bfloat16_inference_rocm_performance",
            ("inductor_max_autotune", "torchbench", "bfloat16", "inference", "rocm", "performance"),
        ),
        (
            "eager_torchbench_notset_inference_mps_performance_12345",
            ("eager", "torchbench", "notset", "inference", "mps", "performance"),
        ),
        (
            "torchbench_amp_training_cuda_accuracy",
            ("", "torchbench", "amp", "training", "cuda", "accuracy"),
        ),
    ],
)
def test_a_name_of_the_nightly_tells_all_six_parts(stem, expected):
    found = parse_name(stem)
    assert (found.config, found.suite, found.dtype, found.mode, found.device, found.target) == expected


@pytest.mark.parametrize(
    ("side", "target"),
    [("compilation_metrics", Target.PHASES), ("graph_breaks", Target.BREAKS), ("stats", Target.OTHER)],
)
def test_a_side_file_names_the_table_it_lies_beside(side, target):
    found = parse_name(f"inductor_dynamic_huggingface_bfloat16_inference_cuda_a10g_performance_{side}")
    assert (found.target, found.beside, found.suite, found.device) == (
        target,
        "performance",
        "huggingface",
        "cuda_a10g",
    )


@pytest.mark.parametrize("stem", ["", "results", "timm_models", "_" * 20_000, "a_torchbench_b_training_cuda", "x\x00y"])
def test_a_name_of_another_form_tells_nothing(stem):
    found = parse_name(stem)
    assert (found.suite, found.dtype, found.mode) == (None, None, None)


def test_a_short_name_still_tells_its_target():
    assert parse_name("my_accuracy").target is Target.ACCURACY
    assert parse_name("accuracy").target is Target.ACCURACY
    assert parse_name("inaccuracy").target is None

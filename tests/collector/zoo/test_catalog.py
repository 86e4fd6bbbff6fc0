"""What the tables promise, checked without building anything."""

import sys
from pathlib import Path

import pytest

from collector.usage_errors import ZooError
from collector.vocabulary import Phase
from collector.zoo.registry import all_models, find, select
from collector.zoo.spec import MissingPackageError, ModelSpec, require

ROOT = Path(__file__).resolve().parents[3]
MODELS = all_models()


def test_a_spec_is_complete_and_says_what_it_does_not_support():
    assert len(set(map(str, MODELS))) == len(MODELS)
    for spec in MODELS:
        assert all(sizes["cuda"] >= 1 for sizes in spec.batch_sizes.values())
        module, _, function = spec.builder.partition(":")
        assert f"def {function}(" in (ROOT / Path(*module.split(".")).with_suffix(".py")).read_text()
        if not spec.supports(Phase.INFERENCE, "cpu"):
            with pytest.raises(ZooError, match=r"not measured on cpu in inference: .*CPU"):
                spec.batch_size(Phase.INFERENCE, "cpu")
    spec = ModelSpec("s", "m", "a:b", {Phase.INFERENCE: {"cuda": 1}}, "", dtypes=("float16",))
    assert not spec.supports(Phase.TRAINING, "cuda")
    assert [spec.supports(Phase.INFERENCE, "cuda", dtype) for dtype in ("float16", "bfloat16")] == [True, False]
    with pytest.raises(ZooError, match="s/m is not measured in training, only in inference"):
        spec.batch_size(Phase.TRAINING, "cuda")


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda: find("huggingface", "bertformaskedml"), "no model bertformaskedml: did you mean BertForMaskedLM"),
        (lambda: find("torchbench", "resnet18"), "did you mean torchvision/resnet18?"),
        (lambda: find("huggingface", "qqq"), "`inductor-watch zoo` lists them"),
        (lambda: find("tim", "x"), "the zoo has no suite tim: did you mean timm?"),
        (lambda: select(in_suites=["hugingface"]), "the zoo has no suite hugingface: did you mean huggingface"),
        (lambda: select(tagged=["cpu_night"]), "the zoo has no tag cpu_night: did you mean cpu-night"),
        (lambda: select(patterns=["resnet19"]), "no model matches resnet19: did you mean resnet18"),
        (lambda: select(in_suites=["timm"], patterns=["timm/mobilevit_x"]), "did you mean timm/mobilevit_s"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(ask, text):
    with pytest.raises(ZooError) as caught:
        ask()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    spec = ModelSpec("timm", "m", "a:b", {}, "", needs=("torch", "no_such_package"))
    assert spec.missing() == ["no_such_package"]
    expected = "suite timm needs no_such_package for m, which is not installed: pip install no_such_package"
    with pytest.raises(MissingPackageError, match=expected):
        require(spec)
    with pytest.raises(MissingPackageError):
        spec.build(1, Phase.INFERENCE, "cpu")
    monkeypatch.setitem(sys.modules, "handmade", type(sys)("handmade"))  # without a spec, and there all the same
    assert ModelSpec("s", "m", "a:b", {}, "", needs=("handmade",)).missing() == []


def test_selection_by_suite_pattern_and_tag():
    assert {spec.suite for spec in select(in_suites=["timm"])} == {"timm"}
    assert [spec.name for spec in select(patterns=["torchvision/resn*"])] == ["resnet18", "resnet50", "resnext50_32x4d"]
    partitioned = {spec.name for spec in select(tagged=["graph-partition"])}
    assert partitioned == {"vision_maskrcnn", "yolov3", "speech_transformer"}
    assert select(in_suites=["timm"], patterns=["mobile*"], tagged=["vision"]) == select(patterns=["timm/mobile*"])

"""From a selection to cells: order, what is left out and why, plans in files, and which cells tune."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from collector.usage_errors import ConfigError
from collector.vocabulary import Config, Phase
from collector.zoo.registry import all_models, find
from jobs.plan.planning import all_configs, check_config, default_dtype, planned_night, read_plan, selected
from jobs.requested_options import Selection

TRITON, ATEN = Config(template="triton"), Config(template="aten")


def small(configs=(TRITON, ATEN), device="cpu", **selection):
    return selected(device, Selection(**{"models": ("ViTTiny*",), **selection}), configs)


def test_the_first_config_is_measured_on_every_model_before_the_second():
    cells = small(models=("ViTTiny*", "T5Small", "BertForMaskedLM")).cells
    assert [item.config for item in cells] == [TRITON] * 3 + [ATEN] * 3
    assert [item.model for item in cells[:3]] == [item.model for item in cells[3:]]


@pytest.mark.parametrize(
    ("config", "said"),
    [(Config(template="tritn"), "triton"), (Config(overrides={"cudagraphs": True}), "triton.cudagraphs")],
)
def test_an_unknown_name_in_a_config_is_refused(config, said):
    with pytest.raises(ConfigError, match=said):
        small([config])


def test_another_backend_takes_no_inductor_options():
    check_config(Config(backend="eager"), "cpu")
    for change in ({"template": "triton"}, {"overrides": {"debug": True}}, {"freezing": False}):
        with pytest.raises(ConfigError, match="takes no Inductor options"):
            check_config(Config(backend="eager", **change), "cpu")


def test_a_plan_in_a_file_is_read_in_its_order_or_refused_in_one_line(tmp_path):
    cells, path = list(reversed(small().cells)), tmp_path / "plan.json"
    path.write_text(json.dumps({"cells": [item.to_json() for item in cells], "left_out": ["x"]}))
    assert read_plan(path, "cpu").cells == cells
    with pytest.raises(ConfigError, match="plans cells for cpu, and this run measures on cuda"):
        read_plan(path, "cuda")
    for text in (
        "not json",
        '{"cells": 5}',
        json.dumps({"cells": [cells[0].to_json() | {"phase": "dreaming"}]}),
        json.dumps({"cells": [], "runs": {"x": "two"}}),
        '{"cells": [' + "[" * 100_000,
        json.dumps({"cells": [cells[0].to_json() | {"batch_size": float("inf")}]}),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match="holds no plan") as caught:
            read_plan(path, "cpu")
        assert "\n" not in str(caught.value)


def test_a_model_runs_in_the_nights_dtype_that_it_takes():
    spec = find("huggingface", "BertForMaskedLM")
    of_training = [default_dtype(spec, device, Phase.TRAINING) for device in ("cpu", "cuda")]
    assert (of_training, default_dtype(spec, "cuda", Phase.INFERENCE)) == (["float32", "amp"], "bfloat16")
    for dtypes, phase, expected in (
        (("as_is", "float32"), Phase.TRAINING, "as_is"),
        (("float32",), Phase.INFERENCE, "float32"),
        (("float32", "amp"), Phase.TRAINING, "amp"),
    ):
        assert default_dtype(replace(spec, dtypes=dtypes), "cuda", phase) == expected


def test_what_narrows_a_night_is_all_that_it_measures():
    tiny = Selection(models=("ViTTiny*",))
    cells = planned_night("cpu", tiny, ("triton+dynamic=true", "freezing")).cells
    assert [item.config.name for item in cells] == ["triton+dynamic_all", "freezing"]
    assert {item.config for item in planned_night("cpu", tiny, ()).cells} == set(all_configs())


def test_a_dtype_that_a_model_does_not_take_leaves_it_out():
    narrow = [spec for spec in all_models() if spec.dtypes and not spec.missing()]
    if not narrow:
        pytest.skip("every installed model takes every dtype: pip install torchvision")
    wrong = next(dtype for dtype in ("float16", "bfloat16", "amp", "float32") if dtype not in narrow[0].dtypes)
    plan = small([TRITON], "cuda", models=(str(narrow[0]),), dtype=wrong)
    assert plan.cells == []
    assert f"not in {wrong}" in plan.left_out[0]

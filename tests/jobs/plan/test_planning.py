"""From a selection to cells: order, what is left out and why, and plans in files."""

from __future__ import annotations

import json

import pytest

from collector.errors import ConfigError
from collector.vocabulary import Config, Phase
from collector.zoo.registry import all_models
from collector.zoo.spec import ZooError
from jobs.plan.default_night import CPU_CONFIGS, all_configs, default_dtype, join, night_plan
from jobs.plan.planning import (
    Matrix,
    Plan,
    PlanError,
    check_config,
    make_plan,
    mode_configs,
    read_plan,
    template_configs,
)

TRITON, ATEN = Config(template="triton"), Config(template="aten")


def small(**changes):
    fields = {"device": "cpu", "dtype": "float32", "configs": [TRITON, ATEN], "models": ("ViTTiny*",)} | changes
    return Matrix(**fields)


def on_cpu(count):
    ready = [m for m in all_models() if m.suite == "huggingface" and m.supports(Phase.INFERENCE, "cpu", "float32")]
    return [spec.name for spec in ready if not spec.missing()][:count]


def test_the_first_config_is_measured_on_every_model_before_the_second():
    names = on_cpu(3)
    assert len(names) == 3
    cells = make_plan(small(models=names)).cells
    assert [cell.config for cell in cells] == [TRITON] * 3 + [ATEN] * 3
    assert [cell.model for cell in cells[:3]] == [cell.model for cell in cells[3:]]


def test_a_cell_has_the_models_own_batch_size_unless_told_otherwise():
    (spec,) = [spec for spec in all_models() if spec.name == "ViTTinyForImageClassification"]
    own = make_plan(small(configs=[TRITON])).cells[0]
    assert own.batch_size == spec.batch_size(Phase.INFERENCE, "cpu")
    assert make_plan(small(configs=[TRITON], batch_size=3)).cells[0].batch_size == 3


def test_what_is_left_out_is_named_with_the_reason():
    plan = make_plan(small(models=(), configs=[TRITON]))
    planned = {(cell.suite, cell.model) for cell in plan.cells}
    left = {tuple(line.partition(":")[0].split("/")) for line in plan.left_out}
    assert planned | left == {(spec.suite, spec.name) for spec in all_models()}
    assert not planned & left
    for spec in all_models():
        if spec.missing():
            line = next(line for line in plan.left_out if line.startswith(f"{spec}:"))
            assert f"needs {', '.join(spec.missing())}, not installed" in line


def test_a_dtype_that_a_model_does_not_take_leaves_it_out():
    narrow = [spec for spec in all_models() if spec.dtypes and not spec.missing()]
    if not narrow:
        pytest.skip("every installed model takes every dtype: pip install torchvision")
    wrong = next(dtype for dtype in ("float16", "bfloat16", "amp", "float32") if dtype not in narrow[0].dtypes)
    plan = make_plan(small(device="cuda", models=(str(narrow[0]),), dtype=wrong, configs=[TRITON]))
    assert plan.cells == []
    assert f"not in {wrong}" in plan.left_out[0]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"models": ("NoSuch",)}, ZooError, "no model matches NoSuch"),
        ({"suites": ("hugingface",)}, ZooError, "huggingface"),
        ({"tags": ("cpu-nigth",)}, ZooError, "cpu-night"),
        ({"configs": [Config(template="tritn")]}, ConfigError, "triton"),
        ({"configs": [Config(mode="fast")]}, ConfigError, "known|did you mean"),
        ({"configs": [Config(overrides={"cudagraphs": True})]}, ConfigError, "triton.cudagraphs"),
        ({"configs": [Config(backend="inductr")]}, ConfigError, "inductor"),
    ],
)
def test_a_matrix_with_an_unknown_name_is_refused(change, error, said):
    with pytest.raises(error, match=said):
        make_plan(small(**change))


@pytest.mark.parametrize(
    "change", [{"template": "triton"}, {"mode": "max-autotune"}, {"overrides": {"debug": True}}, {"freezing": False}]
)
def test_another_backend_takes_no_inductor_options(change):
    check_config(Config(backend="eager"), "cpu")
    with pytest.raises(ConfigError, match="takes no Inductor options"):
        check_config(Config(backend="eager", **change), "cpu")


def test_a_cell_planned_twice_is_measured_once():
    one, two = make_plan(small()), make_plan(small(configs=[ATEN, TRITON]))
    both = join([one, two, Plan([], ["a: why"]), Plan([], ["a: why"])])
    assert both.cells == one.cells
    assert both.left_out == ["a: why"]


def test_a_plan_in_a_file_is_read_back_in_its_order(tmp_path):
    cells = list(reversed(make_plan(small()).cells))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"cells": [cell.to_json() for cell in cells], "left_out": ["x"]}))
    assert read_plan(path, "cpu").cells == cells


def _cell(**changes):
    return make_plan(small(configs=[TRITON])).cells[0].to_json() | changes


@pytest.mark.parametrize(
    "make",
    [
        lambda: "not json",
        lambda: "[]",
        lambda: "{}",
        lambda: '{"cells": 5}',
        lambda: json.dumps({"cells": [{}]}),
        lambda: json.dumps({"cells": [_cell(phase="dreaming")]}),
        lambda: json.dumps({"cells": [_cell(config={"weather": 1})]}),
        lambda: json.dumps({"cells": ["text"]}),
        lambda: '{"cells": [' + "[" * 100_000,
        lambda: json.dumps({"cells": [_cell(batch_size=0)]}).replace('"batch_size": 0', '"batch_size": 1e999'),
    ],
)
def test_a_file_that_holds_no_plan_is_refused_in_one_line(make, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(make())
    with pytest.raises(PlanError, match="holds no plan") as caught:
        read_plan(path, "cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error"),
    [({"model": "NoSuch"}, ZooError), ({"suite": "none"}, ZooError), ({"config": {"template": "tritn"}}, ConfigError)],
)
def test_a_plan_for_what_is_not_here_is_refused(change, error, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"cells": [_cell(**change)]}))
    with pytest.raises(error):
        read_plan(path, "cpu")


def test_a_cpu_night_has_six_models_by_four_configs_and_a_training_cell():
    cells = night_plan("cpu").cells
    inference = [cell for cell in cells if cell.phase is Phase.INFERENCE]
    assert len({cell.model for cell in inference}) >= 6
    assert {cell.config for cell in inference} == set(CPU_CONFIGS)
    assert len(CPU_CONFIGS) >= 4
    assert len(inference) == len({cell.model for cell in inference}) * len(CPU_CONFIGS)
    assert [cell.phase for cell in cells].count(Phase.TRAINING) >= 1
    assert {cell.dtype for cell in cells} == {"float32"}
    assert len({cell.cell_id for cell in cells}) == len(cells)


def test_a_gpu_night_has_every_template_and_mode_and_training_in_amp():
    cells = night_plan("cuda").cells
    inference = {cell.config for cell in cells if cell.phase is Phase.INFERENCE}
    assert inference == set(template_configs()) | set(mode_configs()) == set(all_configs())
    assert {cell.dtype for cell in cells if cell.phase is Phase.TRAINING} == {"amp"}
    assert {cell.dtype for cell in cells if cell.phase is Phase.INFERENCE} == {"bfloat16"}


@pytest.mark.parametrize(
    ("device", "phase", "dtype"),
    [
        ("cpu", Phase.INFERENCE, "float32"),
        ("cpu", Phase.TRAINING, "float32"),
        ("cuda", Phase.INFERENCE, "bfloat16"),
        ("cuda", Phase.TRAINING, "amp"),
    ],
)
def test_the_default_dtype_is_that_of_pytorchs_nights(device, phase, dtype):
    assert default_dtype(device, phase) == dtype


def test_a_plan_for_another_device_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"cells": [cell.to_json() for cell in make_plan(small()).cells]}))
    with pytest.raises(PlanError, match="plans cells for cpu, and this run measures on cuda"):
        read_plan(path, "cuda")

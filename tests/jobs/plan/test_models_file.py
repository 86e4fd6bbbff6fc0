"""`models.toml`: what it plans, and the one line that a wrong one gets."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from collector.own_models import OwnModel
from collector.usage_errors import ConfigError
from collector.vocabulary import Config, Phase
from jobs.checking.check_sides import planned_check
from jobs.cli import app
from jobs.plan.models_file import read_models_file
from jobs.plan.planning import load_plan, planned_night, planned_run
from jobs.pool.child import Request
from jobs.requested_options import RequestedOptions, RunNames, Selection

FILE = """
[models.tiny]
function = "my_models:tiny"
batch_sizes = [1, 8]
phases = ["inference", "training"]
dtypes = ["as_is"]
configs = ["triton", "cudagraphs+graph_partition=false"]
tolerance = 0.02

[models.llm]
function = "my_models:llm"
shapes = { short = { batch = 4, seq = 128 }, long = { seq = 4096 } }
"""
MODULE = "def tiny(batch_size):\n    ...\n\n\ndef llm(seq, batch=1):\n    ...\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.toml").write_text(FILE)
    (tmp_path / "my_models.py").write_text(MODULE)
    return tmp_path


def of(**given):
    return Selection(models_file="models.toml", **given)


def plan_of(*configs, **given):
    return planned_night("cpu", of(**given), configs)


def spelled(plan):
    return {(one.model, one.phase.value, one.dtype, one.batch_size, one.config.name) for one in plan.cells}


def test_a_file_says_in_which_forms_a_model_is_measured(folder):
    plan = plan_of()
    cells = spelled(plan)
    forms = {(size, config) for size in (1, 8) for config in ("triton", "cudagraphs+graph_partition=false")}
    assert {cell[1:] for cell in cells if cell[0] == "tiny"} == {
        (phase.value, "as_is", *form) for phase in Phase for form in forms
    }
    others = {("llm.short", "inference", "float32", 4), ("llm.long", "inference", "float32", 0)}
    assert {cell[:4] for cell in cells if cell[0] != "tiny"} == others
    assert {cell.suite for cell in plan.cells} == {"user"}
    assert "with_zoo = true" in plan.left_out[0]
    assert plan.own_models[0] == OwnModel("tiny", "my_models:tiny", tolerance=0.02)
    assert [dict(model.arguments) for model in plan.own_models[1:]] == [{"batch": 4, "seq": 128}, {"seq": 4096}]


def test_what_the_command_asks_for_goes_before_the_file(folder):
    narrow = plan_of("freezing", models=("tiny",), phases=("inference",), dtype="bfloat16", batch_size=3)
    assert spelled(narrow) == {("tiny", "inference", "bfloat16", 3, "freezing")}
    assert {cell.model for cell in plan_of(models=("llm",)).cells} == {"llm.short", "llm.long"}
    (cell,) = planned_run("cpu", of(models=("user/llm.s*",)), [Config()]).cells
    assert (cell.model, cell.config) == ("llm.short", Config())
    checked = [cell for cell in planned_check("cpu", of(suites=("user",)), ()).cells if cell.model == "tiny"]
    assert {cell.config.name for cell in checked} == {"triton", "cudagraphs+graph_partition=false"}


def test_the_zoo_is_measured_where_it_is_named(folder):
    both = plan_of("triton", models=("tiny", "T5Small")).cells
    assert {cell.suite for cell in both} == {"user", "huggingface"}
    (folder / "models.toml").write_text(f"with_zoo = true\n{FILE}")
    assert {"tiny", "GoogleFnet"} <= {cell.model for cell in plan_of("triton").cells}
    assert "T5Small" in {cell.model for cell in plan_of("triton", everything=True).cells}


def test_the_definitions_travel_without_the_file(folder):
    plan = plan_of("triton", models=("llm",))
    CliRunner().invoke(app, ["plan", "--model", "llm", "--config", "triton", "--shards", "1"], catch_exceptions=False)
    assert load_plan(folder / "plan" / "shard-01.json").own_models == plan.own_models
    (folder / "models.toml").unlink()
    settings = RequestedOptions().settings.with_models(plan.own_models)
    request = Request(of(), (), RunNames(), RequestedOptions(settings))
    assert Request.from_json(request.to_json()) == request
    spelled = Selection(models=(plan.own_models[0].spelled,), batch_size=4)
    again = planned_night("cpu", spelled, ("triton",))
    assert [cell.cell_id for cell in again.cells] == [one.cell_id for one in plan.cells if one.model == "llm.short"]
    assert again.own_models == plan.own_models[:1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("batch_size = 8", "[models.m] batch_size: no such key: did you mean batch_sizes"),
        ("batch_sizes = [0]", "[models.m] batch_sizes: [0]: write a list of whole numbers from 1"),
        ('phases = ["train"]', "[models.m] phases: 'train' is none of them: did you mean training?"),
        ("tolerance = 0", "[models.m] tolerance: 0: write a number above 0"),
        ('source = "nowhere/x"', "[models.m] source: there is no folder nowhere/x beside the file"),
        ("shapes = { a = { seq = 1 } }\nbatch_sizes = [1]", "[models.m] batch_sizes: the shapes have their own"),
        ("function = 3", "models.toml is no TOML: Cannot overwrite a value"),
        ('[models.n]\nfunction = "a.b"', "[models.n] function: 'a.b': write a text"),
    ],
)
def test_a_wrong_line_gets_one_message_that_names_it(folder, line, said):
    (folder / "models.toml").write_text(f'[models.m]\nfunction = "a:b"\n{line}\n')
    with pytest.raises(ConfigError) as caught:
        read_models_file(folder / "models.toml")
    assert said in str(caught.value) and str(caught.value).startswith(str(folder / "models.toml"))
    assert "\n" not in str(caught.value)


def test_init_writes_an_example_once_and_checks_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init"])
    assert (done.exit_code, "models.toml is fine: small" in done.output) == (0, True)
    written = (tmp_path / "models.toml").read_bytes()
    assert "models.toml is fine" in CliRunner().invoke(app, ["init"]).output
    assert "is there already" in CliRunner().invoke(app, ["init", "a:b"]).output
    assert (tmp_path / "models.toml").read_bytes() == written

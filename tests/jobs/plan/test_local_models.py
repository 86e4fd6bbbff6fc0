"""What a foreign bundle says is shown, never called: definitions of own models, programs in configs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collector.own_models import OwnModel, repro_command
from collector.usage_errors import ConfigError
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.plan.models_file import check_local, refusal
from jobs.plan.planning import Plan, read_plan
from jobs.pool import testbeds
from jobs.pool.resuming import find_night
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.command_line import call, is_one_line
from tests.dashboard import stores
from tests.factories import COMMIT_A, COMMIT_B, failing, header, passing, write_bundle

#: The definition of a bundle by which measuring it would leave a file behind.
EVIL = OwnModel("evil", "os:system", {"command": "touch called"})
EAGER = Config(backend="eager")


def own(model, config=EAGER):
    return Cell("user", model, Phase.INFERENCE, "float32", "cpu", 1, config)


def asked_for_evil():
    asked = RequestedOptions().to_json()
    asked["settings"]["own_models"] = [EVIL.to_json()]
    return asked


@pytest.fixture
def folder(tmp_path):
    """A database with two nights of another host, in the second of which everything broke, and their bundles."""
    cells = [own("evil"), own("os:abort"), own("known")]
    environment = {"torch": "2.13.0", "model": {cell.model: EVIL.to_json() | {"name": cell.model} for cell in cells}}
    bundles = []
    for number, make in enumerate((passing, lambda cell: failing(cell, Status.CRASHED))):
        head = header(f"r{number}", minutes=60 * number, commit=(COMMIT_A, COMMIT_B)[number], asked=asked_for_evil())
        made = [make(cell) for cell in cells]
        bundles.append(write_bundle(tmp_path / "runs", head, made, environment=environment))
    stores.store(tmp_path / "watch.db", bundles)
    return tmp_path


def test_run_again_and_resume_call_no_model_that_only_a_bundle_defines(folder):
    said = "user/evil is a model of your own that nothing here defines, and what a bundle says is not called"
    done = call("run", "--again", "latest~1", "latest", "--db", "watch.db", "--device", "cpu", folder=folder)
    is_one_line(done, 3, said)
    write_bundle(folder / "cut", header("r3", asked=asked_for_evil()), [], planned=[own("evil")], closed=False)
    is_one_line(call("resume", "--out", "cut", folder=folder), 2, said)
    assert not (folder / "called").exists()


@pytest.mark.parametrize("name", ["evil", "os:abort", '{"name": "x", "target": "os:abort"}', "a\nb"])
def test_a_command_never_holds_a_definition(name):
    command = repro_command(own(name))
    is_name = name == "evil"
    assert command.startswith("inductor-watch run --suite user --model evil ") is is_name
    assert command.startswith("# ") is not is_name
    assert "\n" not in command


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("cpp.cxx", "sh"), ("anything", "/opt/x"), ("cpp.march", "native -wrapper sh")),
        *(("cuda.arch", "@x"), ("cuda.compile_opt_level", "-fplugin=x")),
    ],
)
def test_a_config_that_names_a_program_is_not_taken_from_a_bundle(key, value):
    cell = Cell("huggingface", "T5Small", Phase.INFERENCE, "float32", "cpu", 1, Config(overrides={key: value}))
    assert key in refusal(cell, {})
    assert repro_command(cell) == f"# the config names a program or a folder: {key}"
    plain = {"max_autotune_gemm_backends": "CUTLASS,ATEN", "triton.cudagraphs": True, "cpp.march": "x86-64-v3"}
    plain |= {"cutlass.compile_opt_level": "-O1", "cutlass.cutlass_op_allowlist_regex": "a (b|c)+"}
    assert refusal(replace(cell, config=Config(overrides=plain)), {}) == ""


def test_a_config_takes_plain_values_only():
    for bad in ({"cpp.cxx": [None, "sh"]}, {"a": {"b": 1}}, [["a", []]]):
        with pytest.raises((ValueError, TypeError)):
            Config.from_json({"overrides": bad})
    with pytest.raises(ValueError, match="another kind"):
        Config.from_json({"fullgraph": "yes"})


def test_resume_uses_no_folder_that_only_a_bundle_names(tmp_path, monkeypatch):
    cells, places = [replace(own("m"), suite="a")], tmp_path / "places"
    monkeypatch.chdir(tmp_path)
    for key, name, option in (("pace", "overlay", "--overlays"), ("settings", "trace", "--trace")):
        asked = RequestedOptions().to_json()
        asked[key][name] = str(places / "x" if name == "overlay" else tmp_path.parent / "elsewhere")
        folder = tmp_path / name
        write_bundle(folder, header(f"of-{name}", asked=asked), [], planned=cells, closed=False)
        (run,) = find_night(folder, None)
        with pytest.raises(ConfigError, match=f"is not used: if it is yours, pass {option}"):
            _ = run.requested
        run = replace(run, overlays=(places,), folders=(tmp_path.parent / "elsewhere",))
        assert run.requested.settings.trace or run.requested.execution.overlay


def test_a_plan_must_define_its_models_and_no_other_definition_is_mixed_in(tmp_path):
    local = {"evil": OwnModel("evil", "mine:good")}
    with pytest.raises(ConfigError, match=r"user/evil is another model here .*mine:good here, os:system there"):
        check_local([own("evil")], local, [EVIL])
    check_local([own("evil")], local, [OwnModel("evil", "mine:good", folder="elsewhere")])
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(Plan([own("os:abort")]).to_json()))
    with pytest.raises(ConfigError, match="name it on the command line"):
        read_plan(path, "cpu")
    path.write_text(json.dumps(Plan([own("os:abort")], own_models=(OwnModel("os:abort", "os:abort"),)).to_json()))
    assert read_plan(path, "cpu").cells == [own("os:abort")]


def test_an_overlay_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    execution = ExecutionOptions(overlay=str(tmp_path), source="a commit")
    assert testbeds._overlay_variables(execution)["PYTHONPATH"].startswith(str(tmp_path))
    monkeypatch.setattr(testbeds.os, "geteuid", lambda: Path(sys.executable).stat().st_uid + 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        testbeds._overlay_variables(execution)

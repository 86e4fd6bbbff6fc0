"""Configs as people type them, settings of torch's back-ends, and the command that measures a cell again."""

import base64
import json
import shlex

import pytest
import torch
from hypothesis import given, settings

from collector.configs import parse_config
from collector.own_models import repro_command
from collector.settings import BackendFlags, Settings
from collector.usage_errors import ConfigError
from collector.vocabulary import BATCH_MARKED, MARKED, Cell, Config, Phase
from jobs.commands.measuring import run_command
from jobs.requested_options import build_configs
from tests.collector.words import configs


@settings(max_examples=100, deadline=None)
@given(configs)
def test_a_name_reads_back_as_the_config_that_it_names(config):
    assert parse_config(config.name) == config


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("default", Config()),
        ("some_option=1e999", Config(overrides={"some_option": "1e999"})),  # no JSON can hold it
        ("aten+max-autotune", Config(template="aten", mode="max-autotune")),
        ("cudagraphs+graph_partition=false", Config(template="cudagraphs", overrides={"graph_partition": False})),
        ("triton+freezing=true+dynamic=false", Config(template="triton", freezing=True, dynamic=False)),
        ("default+backend=eager+dynamic+fullgraph", Config(backend="eager", dynamic=MARKED, fullgraph=True)),
        ("hud:dynamic", Config(template="cudagraphs", dynamic=BATCH_MARKED)),
        ("triton+dynamic_all", Config(template="triton", dynamic=True)),
        ("triton+dynamic=true", Config(template="triton", dynamic=True)),  # its former name
        (" triton + max_autotune=True ", Config(template="triton", overrides={"max_autotune": True})),
    ],
)
def test_a_typed_config_means_what_it_says(text, config):
    assert parse_config(text) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty part"),
        ("triton+aten", "two templates"),
        ("max-autotune+reduce-overhead", "two modes"),
        ("triton+freezing=maybe", "freezing is true or false"),
        ("dynamic+dynamic=false", "twice what is dynamic"),
        ("hud:max_autotun", "did you mean max_autotune"),
        ("hud:dynamic+fullgraph", "no config 'dynamic\\+fullgraph'"),
    ],
)
def test_a_config_that_cannot_be_read_is_one_line(text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        parse_config(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        Config(overrides={"test_configs.autotune_choice_name_regex": "it's; $HOME"}),
        Config(backend="eager", dynamic=True),
    ],
)
def test_the_repro_command_asks_the_real_verb_for_the_same_cell(config):
    cell = Cell("torchbench", "vision_maskrcnn", Phase.TRAINING, "float16", "cpu", 3, config)
    program, verb, *words = shlex.split(repro_command(cell))
    assert (program, verb) == ("inductor-watch", "run")
    found = run_command.make_context("run", words).params
    assert found["suites"] == (cell.suite,)
    assert found["models"] == (cell.model,)
    assert found["phases"] == (cell.phase,)
    assert (found["dtype"], found["device"], found["batch_size"]) == (cell.dtype, cell.device, cell.batch_size)
    assert build_configs(found["configs"], found["backend"]) == [cell.config]


def _base64(data):
    return base64.b64encode(json.dumps(data).encode()).decode()


GRAPHNET = [
    ({}, Config()),
    ({"graph_net_inductor_config_template": "cudagraphs", "fullgraph": True}, Config(template="cudagraphs", fullgraph=True)),
    ({"mode": "max-autotune", "dynamic": False}, Config(mode="max-autotune", dynamic=False)),
    ({"options": {"triton.cudagraphs": True, "max_autotune_gemm_backends": "ATEN"}, "dynamic": None},
     Config(overrides={"triton.cudagraphs": True, "max_autotune_gemm_backends": "ATEN"})),
]  # fmt: skip


@pytest.mark.parametrize(("data", "config"), GRAPHNET)
def test_a_graphnet_config_is_read_as_it_stands_and_in_base64(data, config):
    assert parse_config(json.dumps(data)) == config
    assert parse_config(f" {_base64(data)}\n") == config


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"template": "triton"}, "no key 'template'"),
        ({"mode": "default", "options": {}}, "not several"),
        ({"options": {"triton": {"cudagraphs": True}}}, "plain values"),
        ({"fullgraph": "yes"}, "fullgraph is true or false"),
    ],
)
def test_a_graphnet_config_that_says_something_else_is_refused(data, said):
    with pytest.raises(ConfigError, match=said):
        parse_config(_base64(data))


def test_a_name_that_is_ambiguous_or_could_be_base64_stays_a_name():
    for value in [1e16, 1e-9, "true", "12", "a+b", ""]:
        config = Config(overrides={"some_option": value})
        assert parse_config(config.name) == config
    for name in ["freezing", "default", "cudagraphs", "aten", "MTIz"]:
        assert parse_config(name).name == name


def switches():
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    allowed = cuda.fp16_bf16_reduction_math_sdp_allowed()
    return cuda.matmul.allow_tf32, cudnn.allow_tf32, allowed, cudnn.benchmark


def test_flags_are_applied_and_the_default_is_that_of_pytorchs_runner():
    before = switches()
    flags = BackendFlags.parse(
        ["tf32_matmul=off", "tf32_cudnn=off", "reduced_math_attention=off", "cudnn_benchmark=on"]
    )
    try:
        BackendFlags().apply()
        assert switches() == (True, True, True, False)
        flags.apply()
        assert switches() == (False, False, False, True)
    finally:
        BackendFlags(*before).apply()
    made = Settings(flags=flags, optimizer="adam")
    assert (Settings.from_json(made.to_json()), Settings.from_json({"rounds": 5}).flags) == (made, BackendFlags())
    for word in ("tf32=on", "tf32_matmul", "tf32_matmul=true"):
        with pytest.raises(ValueError, match="write NAME=on or NAME=off with one of tf32_matmul"):
            BackendFlags.parse([word])

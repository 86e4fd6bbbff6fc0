"""PyTorch's names and flags as configs; the expected ones are what test.sh sets (docs/formats.md)."""

from collector.hud_configs import HUD_CONFIGS
from collector.vocabulary import BATCH_MARKED, Config, Status
from db.importing.pytorch_names import config_of, meaning_of

NIGHTLY = {
    "inductor_dynamic": Config(template="cudagraphs", dynamic=BATCH_MARKED),
    "inductor_with_cudagraphs_freezing_autotune": Config(
        template="cudagraphs", freezing=True, overrides={"max_autotune": True}
    ),
    "inductor_max_autotune": Config(template="cudagraphs", overrides={"max_autotune": True}),
    "inductor_aot_inductor": Config(backend="aot_inductor"),
    "inductor_export": Config(backend="export"),
    "inductor_deterministic_perf": Config(overrides={"deterministic": True}),
    "inductor_batch_invariant_accuracy": Config(overrides={"harness.batch_invariant": True}),
}


def test_every_config_of_the_nightly_has_its_own_request():
    wanted = {one.words: one.config for one in HUD_CONFIGS.values()} | NIGHTLY
    assert {name: config_of(name, None, {}) for name in wanted} == wanted

    # The flags beside a name ask for what the name alone asks for.
    flags = {"freezing": False, "dynamic_shapes": False, "inductor_compile_mode": None, "nopython": False}
    for name, own in {
        "inductor_dynamic": {"disable_cudagraphs": False, "dynamic_shapes": True, "dynamic_batch_only": True},
        "inductor_aot_inductor": {"disable_cudagraphs": True, "export_aot_inductor": True},
        "inductor_deterministic_perf": {"disable_cudagraphs": True, "deterministic": True},
    }.items():
        assert config_of(name, "inductor", flags | own) == NIGHTLY[name]


def test_flags_win_and_what_inductor_has_no_option_for_keeps_configs_apart():
    flags = {"disable_cudagraphs": False, "freezing": True, "inductor_compile_mode": "max-autotune", "nopython": True}
    found = config_of("inductor_no_cudagraphs", "inductor", flags)
    assert found == Config(template="cudagraphs", mode="max-autotune", freezing=True, fullgraph=True)
    flags = {"disable_cudagraphs": "True", "dynamic_shapes": True, "channels_last": True, "quantization": "int8"}
    found = config_of("", "inductor", flags)
    assert found.dynamic is True
    assert found.overrides == {"harness.channels_last": True, "harness.quantization": "int8"}
    options = {"disable_cudagraphs": True, "inductor_config": ["epilogue_fusion=False", "triton.x=3", "y=word"]}
    assert config_of("", "inductor", options).overrides == {"epilogue_fusion": False, "triton.x": 3, "y": "word"}
    # An unknown word is not taken for the default.
    found = config_of("inductor_with_cudagraphs_sparkling_new", None, {})
    assert found == Config(template="cudagraphs", overrides={"harness.config": "sparkling_new"})


def test_a_word_that_nobody_knows_is_never_a_pass():
    for odd in ("passed_somehow", "0.5", "\N{ROCKET}", "", "passe", "PASS"):
        found = meaning_of(odd)
        assert not found.is_known and found.status is not Status.PASS
    assert meaning_of("fail_to_run_at_batch_32").status is Status.FAIL_TO_RUN
    assert meaning_of(Status.CRASHED.value).status is Status.CRASHED

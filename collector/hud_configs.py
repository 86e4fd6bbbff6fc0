"""The configs of PyTorch's nightly benchmark, by the names of its dashboard (the HUD): `hud:default`, `hud:dynamic`, ...

Each has exactly the options with which PyTorch's runner compiles. Sources, in pytorch/pytorch:

- `.ci/pytorch/test.sh`, `test_perf_for_dashboard`: flags and variables of each config, the name of its file, and the phases.
- `.github/workflows/inductor-perf-test-nightly*.yml`: which of them a night or a weekly run has (`dashboard-tag`).
- `benchmarks/dynamo/common.py`, `run`: the effect of a flag. Cudagraphs are on there unless `--disable-cudagraphs` is given,
  `--freezing` acts on inference alone, and `--dynamic-batch-only` marks the first dimension as long as the batch.
- `torch/_inductor/config.py`: `TORCHINDUCTOR_MAX_AUTOTUNE` sets `max_autotune` and no coordinate descent,
  `TORCHINDUCTOR_CPP_WRAPPER` sets `cpp_wrapper`.

Left out are `inductor_export`, which compiles nothing, and `inductor_deterministic_perf` and `inductor_batch_invariant_accuracy`,
whose flags also change the settings of eager (`setup_determinism` in common.py).

A `hud:` name is another spelling of a config that could be written out. Imported results of PyTorch get the same config
(`db.importing.pytorch_names`), so that our rows join theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from collector.usage_errors import ConfigError, nearest
from collector.vocabulary import AHEAD_OF_TIME, BATCH_MARKED, Config

PREFIX = "hud:"


@dataclass(frozen=True, slots=True)
class HudConfig:
    """A config of PyTorch's nightly.

    Attributes:
        name: the name that is typed after `hud:`.
        words: the part of its files' names before the suite.
        flags: the flags and variables that PyTorch's script passes to its runner.
        config: the request that compiles with the same options.
        only_inference: whether the nightly runs it for inference only.
    """

    name: str
    words: str
    flags: str
    config: Config
    only_inference: bool = False

    @property
    def note(self) -> str:
        """The source of the options, in one line."""
        phase = ", inference only" if self.only_inference else ""
        return f"PyTorch's {self.words}: {self.flags}{phase} (test_perf_for_dashboard in .ci/pytorch/test.sh)"


_AUTOTUNE = {"max_autotune": True}
_ALL = (
    HudConfig("default", "inductor_no_cudagraphs", "--disable-cudagraphs", Config()),
    HudConfig("cudagraphs", "inductor_with_cudagraphs", "no flag: on by default there", Config(template="cudagraphs")),
    HudConfig(
        *("dynamic", "inductor_dynamic", "--dynamic-shapes --dynamic-batch-only"),
        Config(template="cudagraphs", dynamic=BATCH_MARKED),
    ),
    HudConfig(
        *("cpp_wrapper", "inductor_cpp_wrapper", "TORCHINDUCTOR_CPP_WRAPPER=1 --disable-cudagraphs"),
        Config(template="cpp_wrapper"),
        only_inference=True,
    ),
    HudConfig(
        *("freezing", "inductor_with_cudagraphs_freezing", "--freezing"),
        Config(template="cudagraphs", freezing=True),
        only_inference=True,
    ),
    HudConfig(
        *("freezing_autotune", "inductor_with_cudagraphs_freezing_autotune"),
        "TORCHINDUCTOR_MAX_AUTOTUNE=1 --freezing",
        Config(template="cudagraphs", freezing=True, overrides=_AUTOTUNE),
        only_inference=True,
    ),
    HudConfig(
        *("max_autotune", "inductor_max_autotune", "TORCHINDUCTOR_MAX_AUTOTUNE=1"),
        Config(template="cudagraphs", overrides=_AUTOTUNE),
    ),
    HudConfig(
        *("aot_inductor", "inductor_aot_inductor", "--export-aot-inductor --disable-cudagraphs"),
        Config(backend=AHEAD_OF_TIME),
        only_inference=True,
    ),
)
HUD_CONFIGS: dict[str, HudConfig] = {one.name: one for one in _ALL}
#: PyTorch's word for a config in the names of its files, by `config_id`.
HUD_WORDS: dict[str, str] = {one.config.config_id: one.words for one in _ALL}


def hud_config(text: str) -> Config:
    """Return the config of a name such as `hud:default`. Raises `ConfigError` for a name that the HUD lacks."""
    name = text.removeprefix(PREFIX)
    if name not in HUD_CONFIGS:
        raise ConfigError(f"the HUD has no config {name!r}: {nearest(name, HUD_CONFIGS)}")
    return HUD_CONFIGS[name].config

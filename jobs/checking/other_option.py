"""An option of Inductor as the other side of a check: new is base with the option, from the same Python files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from collector.configs.spelling import parse_config
from collector.errors import ConfigError
from collector.vocabulary import Cell, Config, OptionValue
from jobs.plan.planning import check_config

#: Names of options that may act without a trace in the generated code: how kernels are built, tuned, loaded and launched.
_ACTING = re.compile(
    r"cudagraph|autotune|tuning|compile_threads|worker|cache|debug|trace|profile|memory|stream|align|quiesce|deterministic|"
    r"^(triton|cpp|cuda|cutlass|rocm|halide|aot_inductor)\."
)
#: Of these the ones whose effect is in the code.
_IN_CODE = ("triton.multi_kernel", "triton.persistent_reductions", "triton.prefer_nd_tiling", "triton.max_tiles")


@dataclass(frozen=True, slots=True)
class OtherOption:
    """What `--against` names: options by name, and whether new freezes."""

    text: str
    overrides: Mapping[str, OptionValue] = field(default_factory=dict)
    freezing: bool | None = None

    @classmethod
    def parse(cls, text: str) -> OtherOption:
        """Return the options of `+key=value+key=value`. Raises `ConfigError` for any other text."""
        if not text.startswith("+"):
            raise ConfigError(f"--against {text}: write options as +NAME=VALUE, e.g. +combo_kernels=true")
        config = parse_config(f"default{text}")
        if replace(config, overrides={}, freezing=None) != Config() or config == Config():
            raise ConfigError(f"--against {text}: name options of Inductor alone, e.g. +combo_kernels=true")
        return cls(text, config.overrides, config.freezing)

    @property
    def acting(self) -> list[str]:
        """The options that may act at run time although the generated code is the same."""
        return [f"option {name}" for name in self.overrides if _ACTING.search(name) and name not in _IN_CODE]

    def config(self, config: Config) -> Config:
        """Return a config with the options."""
        freezing = config.freezing if self.freezing is None else self.freezing
        return replace(config, overrides={**config.overrides, **self.overrides}, freezing=freezing)

    def cells(self, cells: Sequence[Cell]) -> dict[str, Cell]:
        """Return the cells of new by the `cell_id` of those of base.

        Raises `ConfigError` where torch does not know an option, or where no config of base is without it.
        """
        found = {cell.cell_id: replace(cell, config=self.config(cell.config)) for cell in cells}
        for config in {cell.config.config_id: cell.config for cell in found.values()}.values():
            check_config(config, next(iter(found.values())).device)
        if any(cell.cell_id in found for cell in found.values()):
            raise ConfigError(f"--against {self.text}: base has these options already in one of its configs")
        return found

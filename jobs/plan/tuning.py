"""Which cells autotune: they hold the device while they compile."""

from __future__ import annotations

from functools import cache

from collector.configs.templates import resolve_config
from collector.errors import ConfigError
from collector.vocabulary import Cell, Config

#: Inductor's options that have it time candidates for matrix products and convolutions, or for every kernel.
_OPTIONS = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")


def tunes(cell: Cell) -> bool:
    """Whether a cell's config times candidates while it compiles."""
    return cell.config.is_inductors and _tunes(cell.config, cell.device)


@cache
def _tunes(config: Config, device: str) -> bool:
    try:
        program = resolve_config(config, device).program  # and not what was asked: variables set such options too
    except ConfigError:
        return False  # it ends before it compiles
    return any(program.get(name) for name in _OPTIONS)

"""Inductor options that came, moved, went or stopped acting between torch 2.7 and 2.13: one table.

What an option does is always asked of the installed torch (`collector.configs.templates`); the table is for what torch does not
say of itself: that a name it still takes no longer acts, where an option has gone, and from which version on there is one.

Source: `torch/_inductor/config.py` of 2.7.1, 2.8.0, 2.9.1, 2.10.0, 2.11.0, 2.12.0 and 2.13.0, compared with each other, and
where `reads` is named the code that reads the option. `tests/collector/configs/test_option_history.py` checks the table against
the installed torch. Every row holds in all releases from 2.7.0 to 2.15.0, except that `custom_should_partition_ops` came with
2.9.1 and is not in 2.9.0.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Came:
    """There is no such option before `since`."""

    key: str
    since: Version
    meaning: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """From `since` on the option is gone, or taken and ignored; `instead` says what to do. `reads`: where that is seen."""

    key: str
    since: Version
    instead: str
    reads: str = ""


#: The section `cuda` was split in 2.11: what steers CUTLASS is read from `cutlass`, and names under `cuda` are taken and ignored.
OLD_SECTION, NEW_SECTION, SPLIT = "cuda.cutlass_", "cutlass.cutlass_", (2, 11)

CAME = (
    Came("use_static_cuda_launcher", (2, 8), "launches kernels without Triton's Python launcher"),
    Came("custom_should_partition_ops", (2, 9), "operators at which a graph is split for cudagraphs"),
    Came("max_autotune_report_choices_stats", (2, 9), "says how many candidates there were and which won"),
    Came("triton.cudagraph_or_error", (2, 9), "an error instead of a silent skip of cudagraphs"),
    Came("deterministic", (2, 10), "the same choices in every process"),
    Came("triton.enable_template_tma_store", (2, 10), "GEMM templates store with TMA"),
    Came("triton.native_matmul", (2, 10), "generates matrix products without a template"),
    Came("triton.reorder_for_reducing_graph_partitions", (2, 10), "moves nodes so that fewer partitions are needed"),
    Came(NEW_SECTION, SPLIT, "what steers CUTLASS; before, it was in the section cuda"),
    Came("cudagraph_unsafe_unbacked_ops", (2, 11), "unbacked operators at which a graph is split"),
    Came("cudagraph_policy", (2, 12), "which graphs get a cudagraph"),
    Came("triton.cudagraph_min_partition_size", (2, 12), "the fewest kernels for which a partition gets a cudagraph"),
    Came("triton.cudagraph_partition_memory_budget", (2, 13), "memory that partitions may take"),
)

STOPPED = (
    Stopped(
        "autotune_fallback_to_aten",
        (2, 8),
        "keep ATEN among max_autotune_gemm_backends",
        "torch/_inductor/config.py: deprecated, this setting is ignored",
    ),
    Stopped(
        "force_disable_caches",
        (2, 9),
        "set TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 instead",
        "torch/compiler/config.py",
    ),
    Stopped("cuda.cutlass_presets", (2, 10), "use cutlass_instantiation_level"),
    Stopped(OLD_SECTION, SPLIT, "use the same name in the section cutlass", "torch/_inductor/codegen/cutlass/utils.py"),
)


def version_of(text: str) -> Version:
    """Major and minor of a version such as `2.13.0+cpu`."""
    major, minor = text.split(".")[:2]
    return int(major), int("".join(char for char in minor if char.isdigit()) or 0)


def living_name(key: str, known: Collection[str]) -> str:
    """The name under which this torch reads an option that has moved; any other name as it is."""
    for spelt, other in ((OLD_SECTION, NEW_SECTION), (NEW_SECTION, OLD_SECTION)):
        if key.startswith(spelt):
            moved = other + key.removeprefix(spelt)
            # Where both are taken the new one is read.
            if moved in known and (spelt == OLD_SECTION or key not in known):
                return moved
    return key


def why_unknown(key: str, torch_version: Version) -> str | None:
    """What became of an option that this torch does not take, or from which version on there is one."""
    for came in CAME:
        if _is(key, came.key) and torch_version < came.since:
            return f"it is new in torch {_spell(came.since)}"
    for stopped in STOPPED:
        if _is(key, stopped.key) and torch_version >= stopped.since:
            return f"removed in torch {_spell(stopped.since)}: {stopped.instead}"
    return None


def why_ignored(key: str, torch_version: Version) -> str | None:
    """Why an option that this torch takes does not act in it; None if it does."""
    for stopped in STOPPED:
        if _is(key, stopped.key) and torch_version >= stopped.since:
            return f"ignored since torch {_spell(stopped.since)}: {stopped.instead}"
    # The code that makes cudagraphs of partitions (cudagraph_partition_post_compile) is not in 2.7.
    if key == "graph_partition" and torch_version < (2, 8):
        return "has an effect from torch 2.8 on: before, no partition becomes a cudagraph"
    return None


def _is(key: str, entry: str) -> bool:
    return key.startswith(entry) if entry.endswith("_") else key == entry


def _spell(version: Version) -> str:
    return f"{version[0]}.{version[1]}"

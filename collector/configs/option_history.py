"""Inductor options that came, moved, went or stopped acting between torch 2.7 and 2.15.

What an option does is always asked of the installed torch (`collector.configs.templates`). This table has what torch does
not say of itself: that a name it still takes no longer acts, where an option has gone, and since when there is one.
Source: `torch/_inductor/config.py` of 2.7 to 2.15, and the code that reads the options. The tests hold it against the
installed torch.
"""

from __future__ import annotations

from collections.abc import Collection

Version = tuple[int, int]

#: The section `cuda` was split in 2.11: what steers CUTLASS is read from `cutlass`, and names under `cuda` are taken and ignored.
OLD_SECTION, NEW_SECTION, SPLIT = "cuda.cutlass_", "cutlass.cutlass_", (2, 11)

#: Option, or section with a trailing `_` -> the first torch that has it.
CAME: dict[str, Version] = {
    "use_static_cuda_launcher": (2, 8),
    "custom_should_partition_ops": (2, 9),  # 2.9.1
    "max_autotune_report_choices_stats": (2, 9),
    "triton.cudagraph_or_error": (2, 9),
    "deterministic": (2, 10),
    "triton.enable_template_tma_store": (2, 10),
    "triton.native_matmul": (2, 10),
    "triton.reorder_for_reducing_graph_partitions": (2, 10),
    NEW_SECTION: SPLIT,
    "cudagraph_unsafe_unbacked_ops": (2, 11),
    "cudagraph_policy": (2, 12),
    "triton.cudagraph_min_partition_size": (2, 12),
    "triton.cudagraph_partition_memory_budget": (2, 13),
}

#: Option or section -> the first torch in which it is gone or ignored, and what to do instead.
STOPPED: dict[str, tuple[Version, str]] = {
    "autotune_fallback_to_aten": ((2, 8), "keep ATEN among max_autotune_gemm_backends"),
    "force_disable_caches": ((2, 9), "set TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 instead"),
    "cuda.cutlass_presets": ((2, 10), "use cutlass_instantiation_level"),
    OLD_SECTION: (SPLIT, "use the same name in the section cutlass"),
}


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
    """What became of an option that this torch does not take, or since which version there is one."""
    for entry, since in CAME.items():
        if _is(key, entry) and torch_version < since:
            return f"it is new in torch {_spell(since)}"
    return _why_stopped(key, torch_version, "removed in")


def why_ignored(key: str, torch_version: Version) -> str | None:
    """Why an option that this torch takes does not act in it; None if it does."""
    # The code that makes cudagraphs of partitions (cudagraph_partition_post_compile) is not in 2.7.
    if key == "graph_partition" and torch_version < (2, 8):
        return "has an effect from torch 2.8 on: before, no partition becomes a cudagraph"
    return _why_stopped(key, torch_version, "ignored since")


def _why_stopped(key: str, torch_version: Version, how: str) -> str | None:
    for entry, (since, instead) in STOPPED.items():
        if _is(key, entry) and torch_version >= since:
            return f"{how} torch {_spell(since)}: {instead}"
    return None


def _is(key: str, entry: str) -> bool:
    return key.startswith(entry) if entry.endswith("_") else key == entry


def _spell(version: Version) -> str:
    return f"{version[0]}.{version[1]}"

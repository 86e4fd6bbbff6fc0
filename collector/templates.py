"""Templates and modes: from a request to the options that the installed torch really applies.

The effective options always come from the installed torch (`effective_options`). The tables `CAME` and `STOPPED` have the
facts that torch does not report: since which version an option exists, and since which version an option is gone, or is
accepted without an effect. Source: `torch/_inductor/config.py` of 2.7 to 2.15, and the code that reads the options. The tests
compare the tables with the installed torch.

The names of the eight templates come from PaddlePaddle/GraphNet#688. Their options do not, because half of GraphNet's options
change nothing (`triton` and `aten` equalled the default program, `cutlass` equalled `max_autotune`, `tma` reaches no GEMM
without autotuning). Here each template changes the compiled program, or `Template.note` says why not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.device import GPU
from collector.usage_errors import ConfigError, nearest
from collector.vocabulary import AHEAD_OF_TIME, Config, Dynamic, OptionValue, short_hash

Version = tuple[int, int]

#: The section `cuda` was split in 2.11: CUTLASS's options are read from `cutlass`, and their names under `cuda` are ignored.
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

#: Option or section -> the first torch in which it is gone or ignored, and the replacement.
STOPPED: dict[str, tuple[Version, str]] = {
    "autotune_fallback_to_aten": ((2, 8), "keep ATEN among max_autotune_gemm_backends"),
    "force_disable_caches": ((2, 9), "set TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 instead"),
    "cuda.cutlass_presets": ((2, 10), "use cutlass_instantiation_level"),
    OLD_SECTION: (SPLIT, "use the same name in the section cutlass"),
}


def version_of(text: str) -> Version:
    """Return major and minor of a version such as `2.13.0+cpu`."""
    major, minor = text.split(".")[:2]
    return int(major), int("".join(char for char in minor if char.isdigit()) or 0)


def living_name(key: str, known: Collection[str]) -> str:
    """Return the name under which this torch reads an option that has moved; return any other name unchanged."""
    for spelt, other in ((OLD_SECTION, NEW_SECTION), (NEW_SECTION, OLD_SECTION)):
        if key.startswith(spelt):
            moved = other + key.removeprefix(spelt)
            # A torch that takes both names reads the new one.
            if moved in known and (spelt == OLD_SECTION or key not in known):
                return moved
    return key


def why_unknown(key: str, torch_version: Version) -> str | None:
    """Return why this torch does not take an option: it is too new or was removed; None if the tables do not say."""
    for entry, since in CAME.items():
        if _is(key, entry) and torch_version < since:
            return f"it is new in torch {_spell(since)}"
    return _why_stopped(key, torch_version, "removed in")


def why_ignored(key: str, torch_version: Version) -> str | None:
    """Return why an option that this torch takes has no effect in it; None if it has one."""
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


@dataclass(frozen=True, slots=True)
class Template:
    """A named set of Inductor options. `note` says what it is for and when it has no effect."""

    name: str
    options: Mapping[str, OptionValue]
    note: str


_ALL = (
    Template(
        "triton", {}, "Inductor's default program, generated kernels (Triton on a GPU, C++ on a CPU); the A/A control"
    ),
    Template(
        "cpp_wrapper", {"cpp_wrapper": True}, "calls the kernels from C++ instead of Python: less launch overhead"
    ),
    Template(
        "cutlass",
        # ATEN stays among the back-ends: without it any GEMM that CUTLASS declines ends in "No choices to select".
        {"max_autotune": True, "max_autotune_gemm_backends": "CUTLASS,ATEN", "coordinate_descent_tuning": True},
        "autotunes CUTLASS against ATen; needs a CUTLASS source checkout and nvcc",
    ),
    Template(
        "aten",
        {"max_autotune": True, "max_autotune_gemm_backends": "ATEN", "max_autotune_conv_backends": "ATEN"},
        "library GEMMs and convolutions, autotuned pointwise kernels: what is left of max_autotune without its GEMMs",
    ),
    Template("cudagraphs", {"triton.cudagraphs": True}, "replays recorded launches; equals mode reduce-overhead"),
    Template(
        "max_autotune",
        {"max_autotune": True, "coordinate_descent_tuning": True},
        "autotunes GEMMs, convolutions and pointwise kernels; equals mode max-autotune-no-cudagraphs",
    ),
    Template("freezing", {"freezing": True}, "inlines weights as constants; acts only on inference without gradients"),
    Template(
        "tma",
        # GEMM templates, and so the persistent TMA one, are offered only while GEMMs are autotuned.
        {
            "max_autotune": True,
            "max_autotune_gemm_backends": "ATEN,TRITON",
            "triton.enable_persistent_tma_matmul": True,
        },
        "autotunes GEMMs with persistent TMA kernels on offer; needs compute capability 9.0 and Triton's TMA",
    ),
)

TEMPLATES: dict[str, Template] = {template.name: template for template in _ALL}

#: Options that change no program, such as places on this machine and the number of compiling threads.
_NOT_THE_PROGRAM = (
    "cpp.vec_isa_ok",
    "debug",
    "trace.",
    "compile_threads",
    "worker_",
    "log_",
    "autotune_local_cache",
    "bundle_triton",
)


@dataclass(frozen=True, slots=True)
class Effective:
    """A request as the installed torch reads it.

    `options` is the argument of `torch.compile(options=...)`; `program` has every effective option that can change the program;
    `changed` has the options in `program` that differ from their defaults; `inert` has the requested options that have no effect
    on this device; `ignored` has the requested options that this torch takes but does not read, with the reason.
    """

    config: Config
    options: dict[str, OptionValue]
    program: dict[str, Any]
    changed: dict[str, Any]
    inert: dict[str, OptionValue] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)

    @property
    def program_id(self) -> str:
        """The hash of `program`, twelve hexadecimal digits: two configs with equal `program_id` request the same program."""
        return short_hash(self.program)


def modes() -> dict[str, dict[str, OptionValue]]:
    """Return the modes of the installed torch, each with the options that it sets."""
    from torch._inductor import list_mode_options

    return {name: dict(options) for name, options in list_mode_options().items()}


def resolve(
    template: str | None = None,
    mode: str | None = None,
    overrides: Mapping[str, OptionValue] | None = None,
    *,
    freezing: bool | None = None,
    dynamic: Dynamic = None,
    fullgraph: bool = False,
    device: str = GPU,
) -> Effective:
    """Return the effective options of a request.

    Overrides win over `freezing`, `freezing` wins over the template, and the template over the mode.
    Raises `ConfigError` for an unknown template, mode or key, or a value of the wrong type.
    """
    return resolve_config(
        Config("inductor", template, mode, dict(overrides or {}), freezing, dynamic, fullgraph), device
    )


def resolve_config(config: Config, device: str) -> Effective:
    """Return the effective options of a `Config`, as `resolve` does for its parts."""
    options = _requested(config)
    defaults = effective_options({})
    ahead = config.backend == AHEAD_OF_TIME
    program = effective_options(options | {"cpp_wrapper": True} if ahead else options)  # as AOTInductor sets it itself
    inert = {key: value for key, value in options.items() if device == "cpu" and not _acts_on_cpu(key)}
    if device == "cpu":
        program = {key: value for key, value in program.items() if _acts_on_cpu(key)}
    program |= {f"torch.compile.{key}": value for key, value in _compile_arguments(config).items()}
    changed = {key: value for key, value in program.items() if value != defaults.get(key)}
    ignored = {key: reason for key in options if (reason := why_ignored(key, _torch_version()))}
    return Effective(config, options, program, changed, inert, ignored)


def _compile_arguments(config: Config) -> dict[str, OptionValue]:
    """Return torch.compile's arguments besides `options` that change the program, if they differ from their defaults."""
    if config.backend == AHEAD_OF_TIME:
        return {"backend": AHEAD_OF_TIME}  # it has one graph and fixed shapes in any case
    dynamic: dict[str, OptionValue] = {"dynamic": config.dynamic} if config.dynamic is not None else {}
    return dynamic | ({"fullgraph": True} if config.fullgraph else {})


def _requested(config: Config) -> dict[str, OptionValue]:
    options: dict[str, OptionValue] = {}
    if config.mode is not None:
        known = modes()
        # A bare word that is no template is taken for a mode, so a misspelt template ends here too.
        if config.mode not in known:
            raise ConfigError(f"unknown template or mode {config.mode!r}: {nearest(config.mode, [*TEMPLATES, *known])}")
        options |= known[config.mode]
    if config.template is not None:
        if config.template not in TEMPLATES:
            raise ConfigError(f"unknown template {config.template!r}: {nearest(config.template, TEMPLATES)}")
        options |= TEMPLATES[config.template].options
    if config.freezing is not None:
        options["freezing"] = config.freezing
    return options | {_known_key(key): value for key, value in config.overrides.items()}


def _known_key(key: str) -> str:
    from torch._inductor import config as inductor_config

    known = inductor_config.get_config_copy()
    name = living_name(key.replace("-", "_"), known)
    if name not in known:
        hint = why_unknown(name, _torch_version()) or nearest(name, known, where="torch._inductor.list_options()")
        raise ConfigError(f"unknown Inductor option {key!r} in this torch: {hint}")
    return name


def _torch_version() -> tuple[int, int]:
    import torch

    return version_of(torch.__version__)


def effective_options(options: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Return every Inductor option that can change a compiled program, with `options` applied, as in torch's own cache key.

    Raises `ConfigError` if torch does not take a value.
    """
    from torch import _TorchCompileInductorWrapper
    from torch._inductor import config as inductor_config

    try:
        # The constructor is where torch.compile itself checks names and types.
        applied = _TorchCompileInductorWrapper(None, dict(options), None).config
    except RuntimeError as error:
        raise ConfigError(str(error).split(", known options are")[0]) from error
    with inductor_config.patch(applied):
        portable = inductor_config.save_config_portable()
    return {key: _plain(value) for key, value in sorted(portable.items()) if _is_program(key, value)}


def _is_program(key: str, value: Any) -> bool:
    return not key.startswith(_NOT_THE_PROGRAM) and not key.endswith(("_dir", "_path")) and not callable(value)


def _acts_on_cpu(key: str) -> bool:
    return not key.startswith(("triton.", "cuda.", "cutlass.", "rocm.", "xpu.")) and key != "coordinate_descent_tuning"


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; a value of a type that JSON lacks becomes its `repr`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in sorted(value.items(), key=str)}
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    return repr(value)

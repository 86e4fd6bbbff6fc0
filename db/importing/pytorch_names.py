"""The meaning of PyTorch's names: the cell and `Config` of a row, columns as metrics, words as statuses.

The cell is taken from the JSON where it is there, else from the file's name, else from the caller's values. The table of
flags with its sources is in docs/formats.md. Flags come from the JSON, which has the whole argument list. Environment
variables (`TORCHINDUCTOR_MAX_AUTOTUNE`, `TORCHINDUCTOR_CPP_WRAPPER`) appear only in the file's name, so its words count
where no flag says otherwise.

A column becomes a metric only where definition and unit allow it; docs/formats.md says why each one does or does not. All
other columns stay among the details, under their own names. Sources of the words: `check_accuracy` and
`write_csv_when_exception` in PyTorch's benchmarks/dynamo/common.py, and the words that its dashboard counts as passing
(`pass`, `pass_due_to_skip`, `eager_variation`).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from collector.vocabulary import BATCH_MARKED, Config, OptionValue, Phase, Stage, Status, canonical_json
from db.importing.result_files import REQUEST, FileName, parse_name
from db.importing.result_rows import Row, Target, meant, number, plain, spelled
from db.store_errors import in_words

#: The words of a config in a file's name, the longest first, each with its settings.
_WORDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cudagraphs_low_precision", {"cudagraphs": True, "harness.low_precision": True}),
    ("batch_invariant_accuracy", {"cudagraphs": False, "harness.batch_invariant": True}),
    ("deterministic_perf", {"cudagraphs": False, "deterministic": True}),
    ("freezing_autotune", {"freezing": True, "max_autotune": True}),
    ("with_cudagraphs", {"cudagraphs": True}),
    ("no_cudagraphs", {"cudagraphs": False}),
    ("max_autotune", {"cudagraphs": True, "max_autotune": True}),
    ("aot_inductor", {"cudagraphs": False, "backend": "aot_inductor"}),
    ("cpp_wrapper", {"cudagraphs": False, "cpp_wrapper": True}),
    ("cudagraphs", {"cudagraphs": True}),
    ("freezing", {"freezing": True}),
    ("dynamic", {"cudagraphs": True, "dynamic": BATCH_MARKED}),
    ("export", {"cudagraphs": False, "backend": "export"}),
    ("default", {}),
)
_BACKENDS = ("inductor", "aot_eager", "eager", "torchao", "cudagraphs")
#: Flags that set an Inductor option: the option and its value.
_OPTIONS: dict[str, tuple[str, OptionValue]] = {
    "deterministic": ("deterministic", True),
    "disable_split_reductions": ("split_reductions", False),
    "disable_persistent_reductions": ("triton.persistent_reductions", False),
    "disable_divisible_by_16": ("triton.divisible_by_16", False),
}
#: Flags that change the program without an Inductor option. They keep their own names, so that configs stay distinct.
_HARNESS = (
    *("batch_invariant", "channels_last", "compiled_autograd", "specialize_int", "quantization", "optimus", "ddp"),
    *("fsdp", "caching_precompile", "enable_activation_checkpointing", "unbacked_batch_only", "use_eval_mode"),
    *("propagate_real_tensors", "prims_nvfuser", "nvfuser"),
)
HARNESS_PREFIX = "harness."


#: Settings that words and flags ask for: `cudagraphs`, `cpp_wrapper`, fields of `Config`, and options of Inductor.
_Settings = dict[str, Any]


def config_of(words: str, backend: str | None, arguments: Mapping[str, Any]) -> Config:
    """Return the config of a row.

    `words` is the part of its file's name before the suite, such as `inductor_with_cudagraphs_freezing`, `backend` the
    model's back-end in the record, `arguments` has the flags of the program; it is empty where only a table was kept.
    """
    settings: _Settings = {"backend": backend or "inductor"}
    _read_words(settings, words)
    if "disable_cudagraphs" in arguments:
        _read_flags(settings, {name: meant(value) for name, value in arguments.items()})
    template = "cudagraphs" if settings.pop("cudagraphs", False) else None
    # Cudagraphs and the C++ wrapper are templates here, and a config has only one template.
    if not template and settings.pop("cpp_wrapper", False):
        template = "cpp_wrapper"
    fields = {name: settings.pop(name, None) for name in ("backend", "mode", "freezing", "dynamic", "fullgraph")}
    fields |= {"freezing": fields["freezing"] or None, "fullgraph": bool(fields["fullgraph"])}
    return Config(template=template, overrides=settings, **fields)


def _read_words(settings: _Settings, words: str) -> None:
    rest = words
    for backend in _BACKENDS:
        if rest == backend or rest.startswith(f"{backend}_"):
            settings["backend"], rest = backend, rest[len(backend) :].strip("_")
            break
    unknown: list[str] = []
    while rest:
        for word, asked in _WORDS:
            if rest == word or rest.startswith(f"{word}_"):
                settings |= asked
                rest = rest[len(word) :].strip("_")
                break
        else:
            head, _, rest = rest.partition("_")
            unknown.append(head)
    if unknown:
        settings[f"{HARNESS_PREFIX}config"] = "_".join(unknown)


def _read_flags(settings: _Settings, arguments: Mapping[str, Any]) -> None:
    inductor = settings["backend"] in ("inductor", "aot_inductor", "export")
    settings["cudagraphs"] = inductor and not arguments["disable_cudagraphs"]
    if "freezing" in arguments:
        settings["freezing"] = bool(arguments["freezing"])
    if "dynamic_shapes" in arguments:
        # The nightly makes only the batch dynamic; dynamic dimensions everywhere are another config.
        is_marked = arguments.get("dynamic_batch_only") or arguments.get("unbacked_batch_only")
        settings["dynamic"] = (BATCH_MARKED if is_marked else True) if arguments["dynamic_shapes"] else None
    if mode := arguments.get("inductor_compile_mode"):
        settings["mode"] = str(mode)
    settings["fullgraph"] = bool(arguments.get("nopython"))
    if arguments.get("export_aot_inductor"):
        settings["backend"] = "aot_inductor"
    elif arguments.get("export"):
        settings["backend"] = "export"
    settings |= {option: value for flag, (option, value) in _OPTIONS.items() if arguments.get(flag)}
    settings |= {f"{HARNESS_PREFIX}{flag}": _option(value) for flag in _HARNESS if (value := arguments.get(flag))}
    listed = arguments.get("inductor_config")
    for text in listed if isinstance(listed, list) else [listed] if listed else []:
        key, _, value = str(text).partition("=")
        option = meant(value)
        settings[key] = spelled(option) if isinstance(option, str) else option


def _option(value: Any) -> OptionValue:
    value = plain(value)
    return value if isinstance(value, bool | int | float | str) else canonical_json(value)


#: The value of a missing field; PyTorch's dashboard uses the same word.
NOT_SET = "notset"
#: The models of PyTorch's torchbench that the zoo has in its suite torchvision.
TORCHVISION = frozenset(
    (
        *("alexnet", "densenet121", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50"),
        *("resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "vgg16"),
    )
)
_PHASES = frozenset(phase.value for phase in Phase)
_DEVICES = {"rocm": "cuda", "hip": "cuda"}


@dataclass(frozen=True, slots=True)
class Given:
    """The caller's values for rows that do not have their own."""

    suite: str | None = None
    phase: str | None = None
    dtype: str | None = None
    device: str | None = None
    config: Config | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A cell without its batch size, which a failed row does not have; and the accelerator, if known."""

    suite: str
    model: str
    phase: Phase
    dtype: str
    device: str
    config: Config
    accelerator: str = field(default="", compare=False)


def identify(row: Row, given: Given) -> Identity | str:
    """Return the cell of a row, or a text that says what is missing."""
    # The JSON of a side file names its table.
    written = row.arguments.get("output")
    name = parse_name(row.source.stem)
    if not name.suite and isinstance(written, str):
        name = parse_name(written.rpartition("/")[2].removesuffix(".csv"))
    is_record = row.benchmark is not None or row.target is Target.GRAPHNET
    fallback = NOT_SET if is_record else None
    suite = row.suite or name.suite or given.suite or row.benchmark
    mode = next((mode for mode in (row.mode, name.mode, given.phase) if mode in _PHASES), None)
    phase = Phase(mode) if mode else Phase.INFERENCE if is_record else None
    dtype = row.dtype or name.dtype or given.dtype or fallback
    device = row.device or _device(name) or given.device or fallback
    words = {"suite": suite, "phase": phase, "dtype": dtype, "device": device}
    if missing := [word for word, value in words.items() if value is None]:
        options = in_words([f"--{word}" for word in missing], "and")
        return f"no {in_words(missing, 'or')} in the file or its name: pass {options}, or name it as PyTorch's nightly does"
    assert suite and phase and dtype and device  # noqa: S101 - all four were just looked at
    config = given.config if given.config and not name.config and not row.arguments else _config(row, name)
    # The device's kind in PyTorch's words (`cuda_h100`, `cpu_x86_zen`), where the file's name or a flag has it.
    accelerator = name.device or str(row.arguments.get("arch") or "") or device
    return Identity(_suite_here(suite, row.model), row.model, phase, dtype, device, config, accelerator)


def _suite_here(suite: str, model: str) -> str:
    """Return the zoo's suite for a model of PyTorch's suites: both name models alike, and two suites differently."""
    if suite == "timm_models":
        return "timm"
    return "torchvision" if suite == "torchbench" and model in TORCHVISION else suite


def _config(row: Row, name: FileName) -> Config:
    if isinstance(own := row.arguments.get(REQUEST), str):
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            return Config.from_json(json.loads(own))
    return config_of(name.config, row.backend, row.arguments)


def _device(name: FileName) -> str | None:
    if not name.device:
        return None
    first = name.device.partition("_")[0]
    return _DEVICES.get(first, first)


class Meaning(NamedTuple):
    """Our status of a word, and the stage of a cell's life in which it happened. `is_known` is False for an unknown word."""

    status: Status
    stage: Stage
    is_known: bool = True


_KNOWN = {
    "pass": Meaning(Status.PASS, Stage.DONE),
    "pass_due_to_skip": Meaning(Status.PASS, Stage.DONE),
    "eager_variation": Meaning(Status.NONDETERMINISTIC, Stage.EAGER),
    "eager_two_runs_differ": Meaning(Status.NONDETERMINISTIC, Stage.EAGER),
    "fail_accuracy": Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS),
    "not_bitwise_equivalent": Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS),
    "fail_to_run": Meaning(Status.FAIL_TO_RUN, Stage.COMPILE),
    "fail_to_compile": Meaning(Status.FAIL_TO_COMPILE, Stage.COMPILE),
    "warmup_failed": Meaning(Status.FAIL_TO_RUN, Stage.COMPILE),
    "OOM": Meaning(Status.OOM, Stage.COMPILE),
    "eager_1st_run_OOM": Meaning(Status.OOM, Stage.EAGER),
    "eager_2nd_run_OOM": Meaning(Status.OOM, Stage.EAGER),
    "eager_1st_run_fail": Meaning(Status.EAGER_FAIL, Stage.EAGER),
    "eager_2nd_run_fail": Meaning(Status.EAGER_FAIL, Stage.EAGER),
    "eager_fail_to_run": Meaning(Status.EAGER_FAIL, Stage.EAGER),
    "model_fail_to_load": Meaning(Status.MODEL_FAIL_TO_LOAD, Stage.LOAD_MODEL),
    "timeout": Meaning(Status.TIMEOUT, Stage.START),
    "infra_error": Meaning(Status.CRASHED, Stage.START),
    "fail_batch_invariance_at_N": Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS),
    "fail_to_run_at_batch_N": Meaning(Status.FAIL_TO_RUN, Stage.COMPILE),
}
#: Words with a number at their end.
_NUMBERED = re.compile(r"(fail_batch_invariance_at|fail_to_run_at_batch)_\d+")
_OURS = frozenset(status.value for status in Status)
#: An unknown word did not pass: any better status would invent a pass.
_UNKNOWN = Meaning(Status.FAIL_TO_RUN, Stage.COMPILE, False)


def meaning_of(word: str) -> Meaning:
    """Return the meaning of a word; an unknown word is never taken for a pass."""
    word = word.strip()
    if match := _NUMBERED.fullmatch(word):
        word = f"{match[1]}_N"
    if word in _KNOWN:
        return _KNOWN[word]
    if word in _OURS:
        return Meaning(Status(word), Stage.START)
    return _UNKNOWN


#: Gigabytes as PyTorch counts them.
_GB = 1e9
#: Counters with the same meaning in PyTorch and here.
_COUNTS = ("unique_graphs", "graph_breaks", "cudagraph_skips")
#: Every column that can become a metric.
METRIC_OF = {
    "unique_graphs": "graphs",
    "graph_breaks": "graph_breaks",
    "cudagraph_skips": "cudagraph_skips",
    "speedup": "speedup",
    "abs_latency": "compiled_ms",
    "eager_peak_mem": "eager_peak_bytes",
    "dynamo_peak_mem": "compiled_peak_bytes",
    "compilation_latency": "compile_cold_s",
    "compression_ratio": "compression",
}


def metrics_of(
    performance: Row | None, accuracy: Row | None, device: str
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return metrics and samples of a cell; a value of zero that means "failed" is none of them."""
    metrics: dict[str, float] = {}
    samples: dict[str, list[float]] = {}

    def take(row: Row, column: str, factor: float = 1.0) -> None:
        """Add a column's metric; a zero or a text is none, and stays in the details. A count may be 0."""
        numbers = [value if factor == 1 else round(value * factor) for value in row.numbers(column)]
        if not numbers or not all(value > 0 or (value == 0 and column in _COUNTS) for value in numbers):
            return
        metrics[METRIC_OF[column]] = float(median(numbers))
        if len(numbers) > 1:
            samples[METRIC_OF[column]] = numbers

    ran = performance
    speedups = [value for value in map(number, ran.values.get("speedup", ())) if value is not None] if ran else []
    if speedups and max(speedups) <= 0:
        ran = None
    if ran is not None:
        take(ran, "speedup")
        take(ran, "abs_latency")
        if is_cold(ran):
            take(ran, "compilation_latency")
        if device == "cuda":
            # On a CPU these columns are the share of the host's memory that the whole process has, another quantity.
            take(ran, "compression_ratio")
            take(ran, "eager_peak_mem", _GB)
            take(ran, "dynamo_peak_mem", _GB)
    counted = ran if ran is not None and any(ran.values.get(column) for column in _COUNTS) else accuracy
    # The counters of a row that failed before anything was compiled are padding.
    if counted is not None and not (counted.target is Target.ACCURACY and counted.padded):
        for column in _COUNTS:
            take(counted, column)
    return metrics, samples


def is_cold(row: Row) -> bool:
    """Return whether `compilation_latency` was taken with `--cold-start-latency`, as PyTorch's nightly always does.

    A table does not record the flag; a table that is named as the nightly names its tables is believed to come from it.
    """
    if row.arguments:
        return bool(row.flag("cold_start_latency")) and not row.flag("warm_start_latency")
    return parse_name(row.source.stem).suite is not None

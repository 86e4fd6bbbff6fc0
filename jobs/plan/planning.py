"""Plans made from a selection or a file: every cell that a run is expected to measure.

The default nights have few models of many kinds; the whole zoo is measured on request only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import click

from collector.configs import parse_config
from collector.own_models import USER, OwnModel
from collector.templates import TEMPLATES, modes, resolve_config
from collector.usage_errors import ConfigError
from collector.vocabulary import AHEAD_OF_TIME, AS_IS, Cell, Config, Phase
from collector.zoo.registry import find, select
from collector.zoo.spec import ModelSpec
from jobs.plan.models_file import WatchedModel, divide, unknown_model
from jobs.requested_options import Selection

#: The configs of a night on a CPU, where all other templates are unavailable or, like `aten`, leave the program as it is.
CPU_CONFIGS = tuple(Config(template=name) for name in ("triton", "cpp_wrapper", "freezing", "max_autotune"))
#: The configs of a training night, templates without autotuning, so that it ends in one night.
TRAINING_CONFIGS = tuple(Config(template=name) for name in ("triton", "cudagraphs", "cpp_wrapper"))
#: The tags of the models of a CPU night, and of the model that it also trains.
CPU_TAG, CPU_TRAINING_TAG = "cpu-night", "cpu-training"
#: The models of a GPU's night: one model for each kind that is compiled today.
GPU_NIGHT = (
    "llm/Llama-3.2-1B.prefill",  # rotary positions, grouped heads, SwiGLU; also trained
    "llm/Llama-3.2-1B.decode",  # one token against a static cache: launches and memory
    "llm/gpt-oss-20b-4layers.decode",  # mixture of experts
    "llm/mamba2-130m.decode",  # state space
    "llm/FlexAttention.sliding_window",  # a template that is generated from the mask
    "llm/whisper-large-v3-turbo.encoder",  # sound
    "modern/unet",  # diffusion: convolutions, group norm, cross attention
    "modern/DiT-B-2",  # diffusion: modulated transformer blocks
    "modern/sam_vit_b_encoder",  # windows, relative positions, large images
    "modern/dlrm",  # embedding bags
    "modern/gcn_arxiv",  # gather and scatter
    "modern/llama_mlp_int8",  # quantised weights
    "modern/adamw_step",  # a foreach optimiser
    "huggingface/BertForMaskedLM",  # encoder
    "torchvision/resnet50",  # convolutions and batch norm
)


class NothingToDoError(click.ClickException):
    """An error for a run in which nothing is left to measure, or nothing could be measured; its text says why."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells of a run in the order of measuring, and a line with the reason for each model that was left out.

    A plan from a file may have the `night` that it is a part of, and how many `runs` each cell needs (by `cell_id`; one if it
    is not there). `own_models` are the user's own models that the cells measure.
    """

    cells: list[Cell]
    left_out: list[str] = field(default_factory=list)
    night: str = ""
    runs: Mapping[str, int] = field(default_factory=dict)
    own_models: tuple[OwnModel, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object, without `runs`, that `load_plan` reads back."""
        optional = {"night": self.night, "own_models": [model.to_json() for model in self.own_models]}
        given = {name: value for name, value in optional.items() if value}
        return {**given, "cells": [cell.to_json() for cell in self.cells], "left_out": self.left_out}


def planned_night(device: str, selection: Selection, configs: tuple[str, ...]) -> Plan:
    """Return the plan of a night on a device: the user's own models that the selection names, and models of the zoo.

    Raises what `selected` and `divide` raise.
    """
    asked = [parse_config(text) for text in configs]
    defaults = {phase: CPU_CONFIGS if device == "cpu" else tuple(all_configs()) for phase in Phase}
    defaults[Phase.TRAINING] = CPU_CONFIGS[:1] if device == "cpu" else TRAINING_CONFIGS
    own, rest = planned_own(device, selection, asked, defaults)
    return joined(own, _zoo_night(device, rest, asked)) if rest else own


def planned_own(
    device: str,
    selection: Selection,
    asked: Sequence[Config],
    defaults: Mapping[Phase, Sequence[Config]],
) -> tuple[Plan, Selection | None]:
    """Return the plan of the user's own models that a selection names, and the selection of zoo models (None without any).

    Forms of the selection take precedence over forms of the file, and these over the defaults. Raises what `divide` raises,
    and `ConfigError` for a config that the installed torch does not know.
    """
    watched, rest = divide(selection)
    cells, left_out = [], []
    for one in watched:
        check_configs(one, selection.models_file, device)
        spec = find(USER, one.model.name, [one.model])
        for phase in map(Phase, selection.phases or one.phases or (Phase.INFERENCE,)):
            dtypes = (selection.dtype,) if selection.dtype else one.dtypes or (default_dtype(spec, device, phase),)
            configs = asked or one.configs or defaults[phase]
            forms = product(configs, dtypes, one.sizes(selection.batch_size, spec.batch_size(phase, device)))
            cells += [Cell(USER, one.model.name, phase, dtype, device, size, config) for config, dtype, size in forms]
    for config in asked:
        check_config(config, device)
    if watched and selection.models_file and not rest and not (selection.suites or selection.models):
        left_out = [
            f"the zoo: {selection.models_file} names the models; with_zoo = true in it adds the night's, --all every one"
        ]
    return Plan(cells, left_out, own_models=tuple(one.model for one in watched)), rest


def check_configs(watched: WatchedModel, path: str, device: str) -> None:
    """Raise `ConfigError` that names file, table and key if the installed torch does not know a config of a model."""
    for config in watched.configs:
        try:
            check_config(config, device)
        except ConfigError as error:
            raise ConfigError(f"{path}: [models.{watched.table}] configs: {error}") from error


def planned_run(device: str, selection: Selection, configs: Sequence[Config]) -> Plan:
    """Return the plan of a selection under these configs; own models use their file's configs if only the default is asked for.

    Raises what `selected` and `divide` raise.
    """
    asked = () if list(configs) == [Config()] else configs
    own, rest = planned_own(device, selection, asked, dict.fromkeys(Phase, configs))
    return joined(own, selected(device, rest, configs)) if rest else own


def _zoo_night(device: str, selection: Selection, asked: Sequence[Config]) -> Plan:
    """Return the plan of the named models, the whole zoo or the default models, in the requested or the default forms.

    Raises what `selected` raises.
    """
    on_cpu, is_default = device == "cpu", not (selection.suites or selection.models or selection.everything)
    chosen = replace(selection, models=GPU_NIGHT) if is_default and not on_cpu else selection
    tags, training_tags = ((CPU_TAG,), (CPU_TRAINING_TAG,)) if is_default and on_cpu else ((), ())
    if selection.is_narrowed or asked:
        return selected(device, chosen, asked or all_configs(), *tags)
    training = replace(chosen, phases=(Phase.TRAINING.value,))
    if on_cpu:
        # Training cells are the longest, so they come first: no core waits for them at the end.
        return joined(
            selected(device, training, CPU_CONFIGS[:1], *training_tags), selected(device, chosen, CPU_CONFIGS, *tags)
        )
    return joined(selected(device, chosen, all_configs()), selected(device, training, TRAINING_CONFIGS))


def selected(device: str, selection: Selection, configs: Sequence[Config], *tags: str) -> Plan:
    """Return the plan of a selection under every config, phase by phase (inference if none is given), and what is left out.

    Raises:
        ZooError: no such suite, model or tag.
        ConfigError: an unknown template, mode or key.
    """
    for config in configs:
        check_config(config, device)
    specs = select(in_suites=selection.suites, patterns=selection.models, tagged=tags)
    own_models = tuple(OwnModel(spec.name, spec.name) for spec in specs if spec.suite == USER)
    plans = []
    for phase in map(Phase, selection.phases or (Phase.INFERENCE,)):
        dtypes = {spec: selection.dtype or default_dtype(spec, device, phase) for spec in specs}
        reasons = {spec: _unfit(spec, phase, device, dtypes[spec]) for spec in specs}
        # Config by config, so that a run that ends early has measured its first configs on every model.
        fit = {spec: selection.batch_size or spec.batch_size(phase, device) for spec in specs if not reasons[spec]}
        cells = [
            Cell(spec.suite, spec.name, phase, dtypes[spec], device, size, config)
            for config in configs
            for spec, size in fit.items()
        ]
        left_out = [f"{spec}: {reason}" for spec, reason in reasons.items() if reason]
        plans.append(Plan(cells, left_out, own_models=own_models))
    return joined(*plans)


def default_dtype(spec: ModelSpec, device: str, phase: Phase) -> str:
    """Return the dtype of PyTorch's own nights: bfloat16 for inference and amp for training on a GPU; float32 on a CPU.

    A model that does not run in this dtype, or that names `as_is` first among its dtypes, gets its first dtype.
    """
    usual = "float32" if device == "cpu" else "amp" if phase is Phase.TRAINING else "bfloat16"
    return usual if not spec.dtypes or (usual in spec.dtypes and spec.dtypes[0] != AS_IS) else spec.dtypes[0]


def joined(*plans: Plan) -> Plan:
    """Join several plans; a cell planned twice is measured once."""
    cells = {cell.cell_id: cell for plan in plans for cell in plan.cells}
    left_out = dict.fromkeys(line for plan in plans for line in plan.left_out)
    own_models = {model.name: model for plan in plans for model in plan.own_models}
    return Plan(list(cells.values()), list(left_out), own_models=tuple(own_models.values()))


def _unfit(spec: ModelSpec, phase: Phase, device: str, dtype: str) -> str | None:
    if missing := spec.missing():
        return f"needs {', '.join(missing)}, not installed"
    if spec.dtypes and dtype not in spec.dtypes:
        return f"runs in {', '.join(spec.dtypes)}, not in {dtype}"
    return None if spec.supports(phase, device) else f"not measured on {device} in {phase}"


def template_configs() -> list[Config]:
    """Return one config for each template, in the order of the templates."""
    return [Config(template=name) for name in TEMPLATES]


def mode_configs() -> list[Config]:
    """Return one config for each mode of the installed torch."""
    return [Config(mode=name) for name in modes()]


def all_configs() -> list[Config]:
    """Return the configs of the eight templates and of the modes of the installed torch."""
    return [*template_configs(), *mode_configs()]


def read_plan(path: Path, device: str | None) -> Plan:
    """Return the plan in a file, as `inductor-watch plan --json` writes it; only its `cells` are needed.

    Raises:
        ConfigError: no such plan in the file, a cell for another device than `device` (by default that of the first cell), a
            model of the user's own that the plan does not define, or a config that the installed torch does not know.
        ZooError: the zoo does not know the model of a cell.
    """
    plan = load_plan(path)
    check_plan(plan, str(path), device)
    return plan


def check_plan(plan: Plan, path: str, device: str | None) -> None:
    """Raise what `read_plan` raises for the cells of a plan; `path` is its file."""
    device = device or (plan.cells[0].device if plan.cells else "cpu")
    defined = {model.name: model for model in plan.own_models}
    for cell in plan.cells:
        if reason := unknown_model(cell, defined):
            raise ConfigError(f"{path}: {reason}")
        find(cell.suite, cell.model, plan.own_models)
    if others := sorted({cell.device for cell in plan.cells} - {device}):
        raise ConfigError(
            f"{path} plans cells for {', '.join(others)}, and this run measures on {device}: choose with --device"
        )
    for config in {cell.config for cell in plan.cells}:
        check_config(config, device)


def load_plan(path: Path) -> Plan:
    """Return the plan in a file unchecked: the host may have neither torch nor the models. Raises `ConfigError` for no plan."""
    try:
        data = json.loads(path.read_text())
        cells, own_models = map(Cell.from_json, data["cells"]), map(OwnModel.from_json, data.get("own_models", ()))
        night, runs = str(data.get("night") or ""), {name: int(count) for name, count in data.get("runs", {}).items()}
        return Plan(list(cells), night=night, runs=runs, own_models=tuple(own_models))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ConfigError(f"{path} holds no plan ({error}): write one with `inductor-watch plan --json`") from error


def names_cell(selection: Selection, cell: Cell) -> bool:
    """Return whether a selection names a cell that is planned already; options that it does not set do not matter.

    Raises `ZooError` for a name in JSON that is no model.
    """
    spelled = (cell.model, f"{cell.suite}/{cell.model}")
    models = [OwnModel.parse(text).name if text.startswith("{") else text for text in selection.models]
    return (
        (not selection.suites or cell.suite in selection.suites)
        and (not models or any(fnmatchcase(text, one) for one in models for text in spelled))
        and (not selection.phases or cell.phase in selection.phases)
        and selection.dtype in (None, cell.dtype)
        and selection.batch_size in (None, cell.batch_size)
    )


def check_config(config: Config, device: str) -> None:
    """Raise `ConfigError` if the installed torch does not know a template, a mode, a key or a back-end of the config."""
    if config.is_inductors:
        effective = resolve_config(config, device)
        if config.backend == AHEAD_OF_TIME:
            from collector.measure.ahead_of_time import check_ahead_of_time

            check_ahead_of_time(effective.options, config.dynamic)
        return
    from torch._dynamo.backends.registry import list_backends

    known = [*list_backends(exclude_tags=()), AHEAD_OF_TIME]
    if config.backend not in known:
        raise ConfigError(f"unknown backend {config.backend!r}: known are {', '.join(known)}")
    if config.template or config.mode or config.overrides or config.freezing is not None:
        raise ConfigError(f"backend {config.backend} takes no Inductor options: leave out template, mode and overrides")

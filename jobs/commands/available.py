"""The models and configs that can be measured here: `inductor-watch templates`, `modes`, `zoo`, `doctor` and `init`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Any

import click

from collector import configs
from collector.device import GPU, device_here
from collector.hud_configs import HUD_CONFIGS, PREFIX
from collector.templates import TEMPLATES, resolve_config
from collector.usage_errors import ConfigError, UnavailableError
from collector.vocabulary import Config, Phase
from collector.zoo.registry import all_models, select, suites
from collector.zoo.spec import ModelSpec
from jobs.options import OUTPUT_FILE, example, json_option, repeatable
from jobs.output.tables import print_wrapped
from jobs.output.terminal import print_json
from jobs.plan.models_file import EXAMPLE, read_models_file, write_example
from jobs.plan.planning import check_configs, mode_configs, template_configs
from jobs.pool.testbeds import HostError, probe
from jobs.requested_options import device_option


@click.command(epilog=example(f"templates --device {GPU}"))
@device_option
@json_option
def templates_command(device: str | None, as_json: bool) -> None:
    """List the eight templates and PyTorch's nightly configs: options, config_id, program_id, and what is missing here."""
    notes = {name: template.note for name, template in TEMPLATES.items()}
    named = {config.name: config for config in template_configs()}
    for name, hud in HUD_CONFIGS.items():
        named[PREFIX + name], notes[PREFIX + name] = hud.config, hud.note
    _list(named, device, as_json, notes)


@click.command(epilog=example("modes --json"))
@device_option
@json_option
def modes_command(device: str | None, as_json: bool) -> None:
    """List the modes of the installed torch: effective options, config_id and program_id."""
    _list({config.name: config for config in mode_configs()}, device, as_json, {})


def _list(configs: Mapping[str, Config], device: str | None, as_json: bool, notes: Mapping[str, str]) -> None:
    """Print each config's ids and changed options, the names of configs with the same program, and what is missing here."""
    device = device or device_here()
    rows = [_config_row(name, config, device, notes.get(name, "")) for name, config in configs.items()]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        same = [other["name"] for other in rows if other["program_id"] == row["program_id"] and other is not row]
        program = f"program {row['program_id']}" + (f"  same program as {', '.join(same)}" if same else "")
        print_wrapped(f"{row['name']:<28} config {row['config_id']}  {program}", 4)
        changed = ", ".join(f"{key}={value}" for key, value in row["changed"].items())
        lacking = row["unavailable"] and f"unavailable here: {row['unavailable']}"
        for line in filter(None, (changed, row["note"], lacking)):
            print_wrapped(f"    {line}", 6)


def _config_row(name: str, config: Config, device: str, note: str) -> dict[str, Any]:
    effective = resolve_config(config, device)
    return {
        "name": name,
        "config": config.name,
        "config_id": config.config_id,
        "program_id": effective.program_id,
        "options": effective.options,
        "changed": effective.changed,
        "inert": effective.inert,
        "note": note,
        "unavailable": _why_unavailable(config, device),
    }


def _why_unavailable(config: Config, device: str) -> str | None:
    # A template is checked for its purpose: a forward pass in the dtype that its kernels take.

    try:
        configs.check_availability(resolve_config(config, device), device, Phase.INFERENCE, "bfloat16")
    except (UnavailableError, ConfigError) as error:
        return str(error)
    return None


@click.command(epilog=example("zoo --suite timm"))
@repeatable("suite", "suites", "Only this suite")
@repeatable("model", "models", "Only this model, by name or pattern")
@json_option
def zoo_command(suites: tuple[str, ...], models: tuple[str, ...], as_json: bool) -> None:
    """List the models: suite, batch sizes, what each needs and whether that is installed."""
    rows = [
        _model_row(spec) for spec in (select(in_suites=suites, patterns=models) if suites or models else all_models())
    ]
    if as_json:
        print_json(rows)
        return
    click.echo(f"{'suite':<12} {'model':<38} {'GPU batch':>9} {'train':>6} {'CPU':>4}  input")
    for row in rows:
        gpu, train, cpu = (
            row["batch_sizes"].get(phase, {}).get(device, "-")
            for phase, device in (("inference", GPU), ("training", GPU), ("inference", "cpu"))
        )
        notes = f"  ({row['notes']})" if row["notes"] else ""
        lack = f"  [not installed: {', '.join(row['missing'])}]" if row["missing"] else ""
        batches = f"{gpu:>9} {train:>6} {cpu:>4}"
        print_wrapped(f"{row['suite']:<12} {row['name']:<38} {batches}  {row['input']}{notes}{lack}", 13)
    ready = sum(not row["missing"] for row in rows)
    click.echo(f"{len(rows)} models, {ready} of them can be built here")


def _model_row(spec: ModelSpec) -> dict[str, Any]:
    return {
        "suite": spec.suite,
        "name": spec.name,
        "batch_sizes": {phase.value: dict(spec.batch_sizes[phase]) for phase in Phase if phase in spec.phases},
        "input": spec.input_note,
        "needs": list(spec.needs),
        "missing": spec.missing(),
        "dtypes": list(spec.dtypes),
        "tags": sorted(spec.tags),
        "notes": spec.notes,
    }


_Finding = tuple[bool, str, str]


@click.command(epilog=example("doctor"))
@json_option
def doctor_command(as_json: bool) -> None:
    """Show what this machine can measure, and what it lacks. Exit code 1 if nothing can be measured."""
    findings = [*_torch(), *_bytecode(), _compiler(), *_templates(), *_suites()]
    if as_json:
        print_json([{"ok": ok, "what": what, "text": text} for ok, what, text in findings])
    else:
        for ok, what, text in findings:
            print_wrapped(f"{'ok     ' if ok else 'missing'}  {what:<16} {text}", 26)
    if not all(ok for ok, what, _ in findings if what in ("torch", "C++ compiler")):
        raise SystemExit(1)


def _torch() -> Iterator[_Finding]:
    try:
        environment = probe(None)
    except HostError as error:
        yield False, "torch", str(error)
        return
    yield True, "torch", f"{environment['torch']} ({environment['torch_git'][:10]})"
    if "gpu" in environment:
        versions = [
            f"{word} {environment[key]}" for key, word in (("driver", "driver"), ("cuda", "CUDA")) if key in environment
        ]
        yield True, "GPU", ", ".join([environment["gpu"], *versions])
        yield "triton" in environment, "triton", str(environment.get("triton", "not installed: pip install triton"))
    else:
        yield False, "GPU", f"none found: measuring on {environment['cpu']}, {environment['cores']} cores"


def _bytecode() -> Iterator[_Finding]:
    """Say that torch has no bytecode, as where a package was installed without and PYTHONDONTWRITEBYTECODE is set."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None or Path(cache_from_source(spec.origin)).exists():
        return
    command = shlex.join([sys.executable, "-m", "compileall", "-q", "-j", "0", str(Path(spec.origin).parents[1])])
    yield False, "bytecode", f"torch has none, so that each process of a run compiles its sources: {command}"


def _compiler() -> _Finding:
    path = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    return path is not None, "C++ compiler", path or "Inductor needs one even for its launchers: install g++"


def _templates() -> Iterator[_Finding]:
    try:
        device = device_here()
    except ImportError:
        return

    for name in TEMPLATES:
        lacking = _why_unavailable(Config(template=name), device)
        yield lacking is None, name, f"template: {lacking}" if lacking else f"template, on {device}"


def _suites() -> Iterator[_Finding]:
    for suite in suites():
        models = [spec for spec in all_models() if spec.suite == suite]
        lacking = sorted({name for spec in models for name in spec.missing()})
        ready = sum(not spec.missing() for spec in models)
        advice = f"; pip install {' '.join(lacking)} for the rest" if lacking else ""
        yield ready > 0, suite, f"{ready} of {len(models)} models can be built{advice}"


@click.command(epilog=example("init my_models:small"))
@click.argument("function", required=False, metavar="[MODULE:FUNCTION]")
@click.option("--models-file", "path", type=OUTPUT_FILE, default=Path("models.toml"), help="The file.")
def init_command(function: str | None, path: Path) -> None:
    """Write a commented models.toml for your own models, or check the one that is there.

    Without a function it gets an example, and my_models.py with a model if there is none. Nothing of yours is imported. An
    existing file is never changed.
    """
    is_there = path.exists()
    if is_there and function:
        raise click.UsageError(f'{path} is there already: add a table [models.NAME] with function = "{function}" to it')
    if not is_there:
        try:
            written = write_example(path, function or EXAMPLE)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        click.echo(f"wrote {' and '.join(map(str, written))}")
    file = read_models_file(path)
    if find_spec("torch"):
        for watched in file.models:
            check_configs(watched, str(path), device_here())
    names = ", ".join(watched.model.name for watched in file.models)
    click.echo(f"{path} is fine: {names}")
    if not is_there:
        click.echo("measure it: inductor-watch nightly")

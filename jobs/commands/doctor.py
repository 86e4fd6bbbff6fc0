"""`inductor-watch doctor`: what this machine can measure, and what it lacks."""

from __future__ import annotations

import json
import shutil
from typing import Any

import click

from jobs.options import json_option


@click.command(help="What this machine can measure, and what it lacks. Exit code 1 if nothing can be measured.")
@json_option
def command(as_json: bool) -> None:
    """Prints one line a finding: ok or missing, with what to do."""
    findings = [*_torch(), *_compiler(), *_templates(), *_suites()]
    if as_json:
        click.echo(json.dumps([{"ok": ok, "what": what, "text": text} for ok, what, text in findings], indent=2))
    else:
        for ok, what, text in findings:
            click.echo(f"{'ok     ' if ok else 'missing'}  {what:<16} {text}")
    if not all(ok for ok, what, _ in findings if what in ("torch", "C++ compiler")):
        raise SystemExit(1)


def _torch() -> list[tuple[bool, str, str]]:
    from jobs.pool.host import HostError, probe

    try:
        environment = probe(None)
    except HostError as error:
        return [(False, "torch", str(error))]
    rows = [(True, "torch", f"{environment['torch']} ({environment['torch_git'][:10]})")]
    if "gpu" in environment:
        facts = f"{environment['gpu']}, driver {environment['driver']}, CUDA {environment['cuda']}"
        return [*rows, (True, "GPU", facts), _package(environment, "triton")]
    return [*rows, (False, "GPU", f"none found: measuring on {environment['cpu']}, {environment['cores']} cores")]


def _package(environment: dict[str, Any], name: str) -> tuple[bool, str, str]:
    return (name in environment, name, str(environment.get(name, f"not installed: pip install {name}")))


def _compiler() -> list[tuple[bool, str, str]]:
    path = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    return [(path is not None, "C++ compiler", path or "Inductor needs one even for its launchers: install g++")]


def _templates() -> list[tuple[bool, str, str]]:
    try:
        import torch
    except ImportError:
        return []
    from collector.configs import availability
    from collector.configs.templates import TEMPLATES, resolve
    from collector.errors import ConfigError, UnavailableError
    from collector.vocabulary import Phase

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for name in TEMPLATES:
        try:
            availability.check(resolve(name, device=device), device, Phase.INFERENCE, "bfloat16")
            rows.append((True, f"{name}", f"template, on {device}"))
        except (UnavailableError, ConfigError) as error:
            rows.append((False, f"{name}", f"template: {error}"))
    return rows


def _suites() -> list[tuple[bool, str, str]]:
    from collector.zoo.registry import all_models, suites

    rows = []
    for suite in suites():
        models = [spec for spec in all_models() if spec.suite == suite]
        lacking = sorted({name for spec in models for name in spec.missing()})
        ready = sum(not spec.missing() for spec in models)
        advice = f"; pip install {' '.join(lacking)} for the rest" if lacking else ""
        rows.append((ready > 0, suite, f"{ready} of {len(models)} models can be built{advice}"))
    return rows

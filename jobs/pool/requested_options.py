"""How a run was asked for, as its bundle keeps it: `resume` then needs no option but the run's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from collector.settings import Settings
from jobs.pool.runner import Pace


def to_asked(settings: Settings, pace: Pace, environment: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's header keeps of its request, and of the torch that it measures; the budget is each attempt's own."""
    kept = {name: value for name, value in asdict(pace).items() if name != "budget_s"}
    return {"settings": settings.to_json(), "pace": kept, "torch_git": environment["torch_git"]}


def asked_settings(asked: Mapping[str, Any]) -> Settings:
    """The settings in a header. Raises `KeyError` or `TypeError` if they are another program's."""
    return Settings.from_json(asked["settings"])


def asked_pace(asked: Mapping[str, Any], budget_s: float) -> Pace:
    """The pace in a header, with this attempt's budget. Raises `KeyError` or `TypeError`."""
    known = {item.name for item in fields(Pace)}
    pace = Pace(**{name: value for name, value in asked["pace"].items() if name in known})
    return replace(pace, budget_s=budget_s)

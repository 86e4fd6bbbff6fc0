"""One measurement as the rows that will hold it; program and environment still by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from collector.metrics import METRICS
from collector.vocabulary import Measurement
from db.arrays import pack, relative_spread
from db.fitness import finite, whole
from db.packing.throttling import THROTTLED, throttled_of
from db.texts import clean, clean_compact


@dataclass(slots=True)
class IncomingMeasurement:
    """One row of `measurements` and its metrics, with its rows of `evidence` and `samples`; program and environment by name."""

    row: dict[str, Any]
    program_id: str | None
    environment_id: str | None
    evidence: dict[str, Any] | None
    samples: list[dict[str, Any]]


def to_rows(measurement: Measurement, started_at: float, version: int) -> IncomingMeasurement:
    """The rows of one measurement that began at `started_at`, seconds since 1970. Raises one of `UNFIT` if it cannot be."""
    details = dict(measurement.details)
    metrics = _metrics(measurement, details)
    samples = {clean(metric): values for metric, values in measurement.samples.items()}
    failure = measurement.failure
    row = {
        "replicate": whole(measurement.replicate, "replicate"),
        "status": measurement.status.value,
        "started_at": started_at,
        "wall_s": finite(measurement.wall_s, "wall_s"),
        **{name: metrics.get(name) for name in METRICS},
        THROTTLED: throttled_of(details),
        "stage": failure.stage.value if failure else None,
        "exception": clean(str(failure.exception)) if failure else None,
        "message": clean(str(failure.message)) if failure else None,
        "hint": clean(str(failure.hint)) if failure and failure.hint is not None else None,
        "version": version,
    }
    return IncomingMeasurement(
        row,
        _name(measurement.program_id),
        _name(measurement.environment_id),
        _evidence(details, measurement.log_tail),
        [_samples(metric, values) for metric, values in sorted(samples.items())],
    )


def _metrics(measurement: Measurement, details: dict[str, Any]) -> dict[str, float]:
    """The metrics that the store knows. Those of a newer collector, and values that are no number, go to the details."""
    numbers = {name: value for name, value in measurement.metrics.items() if math.isfinite(value)}
    others = {
        name: value if name in numbers else str(value)
        for name, value in measurement.metrics.items()
        if name not in METRICS or name not in numbers
    }
    if others:
        details["other_metrics"] = others
    return numbers


def _evidence(details: dict[str, Any], log_tail: str | None) -> dict[str, Any] | None:
    if not details and not log_tail:
        return None
    return {
        "details": clean_compact(details) if details else None,
        "log_tail": clean(str(log_tail)) if log_tail else None,
    }


def _samples(metric: str, values: list[float]) -> dict[str, Any]:
    number_format, data = pack(values)
    spread = relative_spread(values) if all(map(math.isfinite, values)) else None
    found = {"metric": metric, "count": len(values), "spread": spread}
    return {**found, "number_format": number_format, "data": data}


def _name(value: Any) -> str | None:
    return None if value is None else clean(str(value))

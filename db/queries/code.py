"""The code that a compiler generated for cells, and the texts of its kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, select

from collector.code import Code
from collector.vocabulary import Status
from db.connecting import Source, by_key, connected
from db.queries.details import SAME_CODE_AS, details_with, evidence
from db.schema import CodeRow, CodeText, Evidence, measurements, results

#: What the details of a timed measurement say of its kernels.
_OF_KERNELS = ("compiled_kernels", "eager_kernels", "outside_kernels", "autotuned")


def code_of(source: Source, run_id: str, cell_id: str) -> Code | None:
    """The code of a run's newest measurement of a cell; None where none is stored."""
    query = select(results.c.code_id).where(results.c.run_id == run_id, results.c.cell_id == cell_id)
    with connected(source) as conn:
        code_id = conn.execute(query.order_by(results.c.started_at.desc()).limit(1)).scalar()
        return codes(conn, [code_id]).get(code_id) if code_id else None


def codes(source: Source, code_ids: Iterable[str]) -> dict[str, Code]:
    """The codes of these ids; those that are not stored are left out."""
    stored = by_key(source, CodeRow.code_id, CodeRow.graphs, code_ids)
    return {key: Code.from_json({"code_id": key, "graphs": json.loads(graphs)}) for key, graphs in stored.items()}


def texts_of(source: Source, text_ids: Iterable[str]) -> dict[str, str]:
    """The texts of these ids; those that are not stored are left out."""
    return by_key(source, CodeText.text_id, CodeText.text, text_ids)


def with_kernels(source: Source, cell_id: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """A measurement's details, with the kernels of the night that timed its code if it was not timed again."""
    row = results.c
    timed = select(row.run_id).where(row.night == details.get(SAME_CODE_AS), row.cell_id == cell_id)
    timed = timed.where(row.compiled_ms.is_not(None)).order_by(row.started_at.desc()).limit(1)
    with connected(source) as conn:
        run_id = conn.execute(timed).scalar() if details.get(SAME_CODE_AS) else None
        earlier = evidence(conn, run_id, cell_id)[0] if run_id else {}
    return {name: earlier[name] for name in _OF_KERNELS if name in earlier} | dict(details)


def is_untimed() -> ColumnElement[bool]:
    """The condition that a measurement was compiled and not timed (`Settings.code_only`, or its code was known)."""
    row = measurements.c
    return and_(row.status == Status.PASS.value, row.code_id.is_not(None), row.compiled_ms.is_(None))


def same_code_as(source: Source, runs: Iterable[int]) -> dict[tuple[str, str, int], str]:
    """The night whose results count for each measurement of these runs (by number) that was not timed for that reason.

    By run_id, cell_id and replicate.
    """
    found = details_with(source, SAME_CODE_AS, Evidence.run.in_(list(runs)), is_untimed())
    return {key: str(details[SAME_CODE_AS]) for key, details in found.items() if details.get(SAME_CODE_AS)}

"""The code that a compiler generated for cells, and the texts of its kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import select

from collector.code import Code
from db.connecting import Source, chunks, connected
from db.schema import CodeRow, CodeText, results


def code_of(source: Source, run_id: str, cell_id: str) -> Code | None:
    """The code of a run's newest measurement of a cell; None where none is stored."""
    query = select(results.c.code_id).where(results.c.run_id == run_id, results.c.cell_id == cell_id)
    with connected(source) as conn:
        code_id = conn.execute(query.order_by(results.c.started_at.desc()).limit(1)).scalar()
        return codes(conn, [code_id]).get(code_id) if code_id else None


def codes(source: Source, code_ids: Iterable[str]) -> dict[str, Code]:
    """The codes of these ids; those that are not stored are left out."""
    found: dict[str, Code] = {}
    with connected(source) as conn:
        for chunk in chunks(sorted(set(code_ids))):
            rows = conn.execute(select(CodeRow.code_id, CodeRow.graphs).where(CodeRow.code_id.in_(chunk)))
            for code_id, graphs in rows:
                found[code_id] = Code.from_json({"code_id": code_id, "graphs": json.loads(graphs)})
    return found


def texts_of(source: Source, text_ids: Iterable[str]) -> dict[str, str]:
    """The texts of these ids; those that are not stored are left out."""
    found: dict[str, str] = {}
    with connected(source) as conn:
        for chunk in chunks(sorted(set(text_ids))):
            rows = conn.execute(select(CodeText.text_id, CodeText.text).where(CodeText.text_id.in_(chunk)))
            found |= {row.text_id: row.text for row in rows}
    return found

"""The small tables that a measurement refers to: the database's number of each name. New names are inserted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Connection, and_, func, insert, or_, select, tuple_, update

from db.connecting import chunks
from db.incoming import Incoming
from db.schema import Base, Branch, CellRow, Commit, ConfigRow, Environment, Model, Program
from db.texts import clean, clean_json

Key = tuple[Any, ...]


def ensure(
    conn: Connection, table: type[Base], key: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> dict[Key, int]:
    """The `id` of every row by the values of its key columns; rows whose key is new are inserted."""
    by_key = {tuple(row[name] for name in key): row for row in rows}
    known = _find(conn, table, key, by_key)
    new = [row for values, row in by_key.items() if values not in known]
    if new:
        conn.execute(insert(table), [dict(row) for row in new])
        known |= _find(conn, table, key, [values for values in by_key if values not in known])
    return known


def commit_key(conn: Connection, commit: Mapping[str, Any]) -> int:
    """The number of a commit. Facts of a bundle fill gaps, and never replace facts of a repository.

    Of two bundles that disagree the smaller value counts, whichever came first.
    """
    number = ensure(conn, Commit, ("repo", "sha"), [commit])[commit["repo"], commit["sha"]]
    for name in ("author_date", "title", "pr_number"):
        if commit[name] is not None:
            column = getattr(Commit, name)
            may_change = or_(column.is_(None), and_(Commit.position.is_(None), column > commit[name]))
            conn.execute(update(Commit).where(Commit.id == number, may_change).values({name: commit[name]}))
    return number


def branch_key(conn: Connection, repo: str, name: str, start: Mapping[str, Any] | None = None) -> int:
    """The number of a branch. A start fills a gap. Of two different starts the later one in the line counts."""
    number = ensure(conn, Branch, ("repo", "name"), [{"repo": repo, "name": name}])[repo, name]
    if start is not None:
        given = commit_key(conn, start)
        known = conn.execute(select(Branch.start).where(Branch.id == number)).scalar()
        order = (func.coalesce(Commit.position, -1).desc(), Commit.sha.desc())
        later = select(Commit.id).where(Commit.id.in_((given, known))).order_by(*order).limit(1).scalar_subquery()
        conn.execute(update(Branch).where(Branch.id == number).values(start=later))
    return number


def cell_keys(conn: Connection, incoming: Incoming) -> dict[str, int]:
    """The number of every cell by `cell_id`, its model and config included."""
    known = {name: number for (name,), number in _find(conn, CellRow, ("cell_id",), zip(incoming.cells)).items()}
    # The cells of a model get neighbouring numbers, and so its rows of a night lie side by side: a history reads few pages.
    unknown = [(str(cell), cell_id) for cell_id, cell in incoming.cells.items() if cell_id not in known]
    new = {cell_id: incoming.cells[cell_id] for _, cell_id in sorted(unknown)}
    if not new:
        return known
    models: dict[Key, dict[str, Any]] = {}
    configs: dict[str, dict[str, Any]] = {}
    for cell in new.values():
        models[cell.suite, cell.model] = {"suite": clean(cell.suite), "name": clean(cell.model)}
        if (config := cell.config).config_id not in configs:
            request = clean_json(config.to_json())
            configs[config.config_id] = {"config_id": config.config_id, "name": clean(config.name), "request": request}
    model_keys = ensure(conn, Model, ("suite", "name"), models.values())
    config_keys = ensure(conn, ConfigRow, ("config_id",), configs.values())
    rows = [
        {
            "cell_id": cell_id,
            "model": model_keys[clean(cell.suite), clean(cell.model)],
            "phase": cell.phase.value,
            "dtype": clean(cell.dtype),
            "device": clean(cell.device),
            "batch_size": cell.batch_size,
            "config": config_keys[(cell.config.config_id,)],
        }
        for cell_id, cell in new.items()
    ]
    return known | {name: number for (name,), number in ensure(conn, CellRow, ("cell_id",), rows).items()}


def record_keys(
    conn: Connection, kind: Literal["program", "environment"], records: Mapping[str, Any]
) -> dict[str | None, int | None]:
    """The number of every program or environment by its public name; None stands for itself.

    A record that an earlier, damaged bundle had lost is filled in.
    """
    table: type[Program | Environment] = Program if kind == "program" else Environment
    key, value = f"{kind}_id", "options" if kind == "program" else "data"
    known = _find(conn, table, (key,), zip(records))
    numbers = ensure(conn, table, (key,), [{key: name, value: data} for name, data in records.items()])
    for name, data in records.items():
        if (name,) in known and data is not None:
            column = getattr(table, value)
            conn.execute(update(table).where(table.id == numbers[(name,)], column.is_(None)).values({value: data}))
    return {None: None} | {name: number for (name,), number in numbers.items()}


def _find(conn: Connection, table: type[Base], key: Sequence[str], values: Iterable[Key]) -> dict[Key, int]:
    columns = [getattr(table, name) for name in key]
    identity = table.__table__.c["id"]
    numbers: dict[Key, int] = {}
    for chunk in chunks(values):
        wanted = columns[0].in_([value for (value,) in chunk]) if len(key) == 1 else tuple_(*columns).in_(chunk)
        numbers |= {tuple(row[1:]): row[0] for row in conn.execute(select(identity, *columns).where(wanted))}
    return numbers

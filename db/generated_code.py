"""Stores the generated code of a bundle's measurements. A bundle lacks what another one of its folder has."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from collector.bundle import BundleContents, BundleError, KnownCode, read_bundle
from collector.code import Code, unpack_text
from collector.vocabulary import canonical_json
from db.connecting import by_key
from db.incoming import Incoming, storable
from db.schema import Base, CodeRow, CodeText
from db.texts import clean


def store_code(conn: Connection, incoming: Incoming, folder: Path) -> None:
    """Stores the code that this database does not have, and its texts.

    What the bundle lacks is read from the bundles of its folder, which perhaps are not in this database: a run may have
    been removed from it, or never stored.
    """
    used = {item.row["code_id"] for item in incoming.measurements.values()} - {None}
    lacking = _lacking(conn, CodeRow.code_id, used)
    if not lacking:
        return
    beside = _Beside(folder, incoming)
    codes = {code_id: code for code_id in lacking if (code := beside.code(code_id))}
    _insert(
        conn,
        CodeRow,
        [{"code_id": key, "graphs": canonical_json(code.to_json()["graphs"])} for key, code in codes.items()],
    )
    text_ids = set[str]().union(*(code.text_ids for code in codes.values()))
    texts = {text_id: beside.text(text_id) for text_id in _lacking(conn, CodeText.text_id, text_ids)}
    _insert(conn, CodeText, [{"text_id": key, "text": text} for key, text in texts.items() if text is not None])


class _Beside:
    """The code of a bundle and of those beside it, of which one is read when something in it is asked for."""

    def __init__(self, folder: Path, incoming: Incoming) -> None:
        self._known, self._codes, self._texts = KnownCode(folder), dict(incoming.codes), dict(incoming.texts)
        self._read: set[Path] = set()

    def code(self, code_id: str) -> Code | None:
        if code_id not in self._codes:
            self._read_bundle_of(code_id)
        return self._codes.get(code_id)

    def text(self, text_id: str) -> str | None:
        if text_id not in self._texts:
            self._read_bundle_of(text_id)
        return self._texts.get(text_id)

    def _read_bundle_of(self, name: str) -> None:
        path = self._known.bundle_of(name)
        if path is None or path in self._read:
            return
        self._read.add(path)
        with suppress(BundleError, OSError, RecursionError):  # then there is a comparison without this text
            contents: BundleContents = read_bundle(path)
            self._codes |= {code_id: Code.from_json(code) for code_id, code in contents.codes.items()}
            self._texts |= storable("text", contents.texts, unpack_text, [])


def _lacking(conn: Connection, column: Any, names: Iterable[str]) -> list[str]:
    """Those of the names that the column does not have, and could have."""
    usable = {name for name in names if clean(name) == name}
    return sorted(usable - by_key(conn, column, column, usable).keys())


def _insert(conn: Connection, table: type[Base], rows: list[dict[str, Any]]) -> None:
    if rows:
        conn.execute(insert(table), rows)

"""What all tables share: the registry, names for constraints, which Python type is kept how."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Double, LargeBinary, MetaData, Text
from sqlalchemy.orm import DeclarativeBase

#: Every schema this program knows, oldest first. The last is the one it reads and writes.
VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006")

#: Clustered by primary key: a night's rows lie side by side, in the order that a comparison reads them.
CLUSTERED = {"sqlite_with_rowid": False}


class Base(DeclarativeBase):
    """The registry of all tables. Every constraint has a name, so that a later migration can speak of it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Text, float: Double, dict[str, Any]: JSON, bytes: LargeBinary}  # noqa: RUF012

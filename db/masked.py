"""Column types that hide, on the way in and on the way out, what a database must not tell: `collector.masking`.

A database from before November 2026 may hold passwords; with these types no query returns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, Dialect, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from collector.masking import mask, mask_fingerprint


class MaskedText(TypeDecorator[str]):
    """A text that a person wrote or that may quote an address. A server sorts it by its bytes, as SQLite does."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the database."""
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Mask on the way in."""
        return None if value is None else str(mask(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Mask on the way out."""
        return None if value is None else str(mask(value))


class MaskedJson(TypeDecorator[dict[str, Any]]):
    """A JSON object whose texts may quote an address. None is NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        """Return the type of what a part of the object is compared with."""
        return self.impl_instance.coerce_compared_value(op, value)

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:
        """Mask on the way in."""
        return self._masked(value)

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:
        """Mask on the way out."""
        return self._masked(value)

    def _masked(self, value: Any) -> dict[str, Any] | None:
        masked: dict[str, Any] | None = mask(value)
        return masked


class MaskedFingerprint(MaskedJson):
    """An environment, of whose variables only those are told that are known to matter."""

    cache_ok = True

    def _masked(self, value: Any) -> dict[str, Any] | None:
        return mask_fingerprint(value) if isinstance(value, Mapping) else super()._masked(value)

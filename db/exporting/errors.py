"""What an export says when it cannot go on."""

from __future__ import annotations


class ExportingError(Exception):
    """A place that cannot be written to, or a format that does not go there; the text is one line."""

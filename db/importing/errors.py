"""What an import says when it cannot go on."""

from __future__ import annotations


class ImportingError(Exception):
    """A file that nothing can be read from, or a run whose commit, branch or date nobody told; the text is one line."""

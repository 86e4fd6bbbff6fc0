"""torch's structured trace of a compilation, for `tlparse`, in a folder a cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector.vocabulary import Cell


def trace_where_asked(cell: Cell, root: str) -> str | None:
    """Has torch write its trace of this process, and says in which folder under `root`; None where that is empty.

    What `TORCH_TRACE` does when torch is imported; the import may be long past in a forked process.
    """
    if not root:
        return None
    from torch._logging import _internal

    handler: Any = getattr(_internal, "LOG_TRACE_HANDLER", None)
    if handler is None or not hasattr(handler, "root_dir"):
        return None
    folder = Path(root).resolve() / cell.cell_id
    folder.mkdir(parents=True, exist_ok=True)
    handler.root_dir = str(folder)
    return folder.name

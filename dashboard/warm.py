"""What the first page needs, made ready while the server starts: else whoever comes first waits for it.

pandas, scipy, SQLAlchemy and Altair take over a second to import, and Streamlit runs a page's script, imports included, only
when somebody asks for it. The server answers once they are imported; the first comparison is read in a thread of its own,
and a page that comes meanwhile waits for that thread instead of reading the same again.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from db.errors import SideError, StoreError

#: glibc's settings (malloc.h): M_ARENA_MAX, how many heaps there are to be; M_MMAP_THRESHOLD, from how many bytes on something
#: is given back at once when it is let go. The second is 128 KiB until glibc raises it, which it does not once it is named.
_SETTINGS = ((-8, 2), (-3, 128 * 1024))


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """For `st.App`: from the start of the server to its end."""
    prepare()
    from dashboard.ahead import ahead

    ahead.start()
    yield


def prepare() -> threading.Thread:
    """Imports what pages import, and starts to read what the first page shows; the thread that reads."""
    _share_memory()
    # Imported here and not above: a page that draws no chart runs without them where there is no such start (in tests).
    from dashboard import data, selection  # noqa: F401
    from dashboard.pages.trends import levels  # noqa: F401

    reader = threading.Thread(target=_read, name="first comparison", daemon=True)
    reader.start()
    return reader


def _share_memory() -> None:
    """Makes threads share their heaps, where the C library is glibc, which gives each a heap of its own and keeps it.

    Every person's page runs in a thread: with eight of them the server held half as much again as it used.
    """
    with contextlib.suppress(OSError, AttributeError):
        for name, value in _SETTINGS:
            ctypes.CDLL(None).mallopt(name, value)


def _read() -> None:
    """The newest night against the one before it. What goes wrong is said by the page, which meets it again."""
    from analysis.reports.permalinks import fixed_side as fixed
    from dashboard import data, selection
    from dashboard.pages.overview import headline
    from db.queries.filters import CellFilter

    try:
        store = data.opened()
        new = store.side(selection.LATEST)
        base = selection.previous(store, new)
        store.axes()
        if base is not None:
            pair = (fixed(store.side(base.night)), fixed(new))
            store.recent(pair[1], CellFilter(), headline.COMPARED)
            store.key_figures(*pair, CellFilter())
            store.intervals(*pair, CellFilter())
            store.records(with_closed=False)
    except (SideError, StoreError):
        return

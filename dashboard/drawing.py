"""Altair as the pages use it: a chart is checked once, when it is handed over, and not again with each part it is made of.

A page with five charts spends half a second less on checks that the last of them repeats. Import `alt` from here.
"""

from __future__ import annotations

import altair as alt
from altair.utils import schemapi

__all__ = ["alt"]

schemapi.disable_debug_mode()

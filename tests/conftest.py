"""How generated inputs are drawn: the same ones every time, so that a change is judged by itself.

`HYPOTHESIS_PROFILE=explore pytest` draws new ones; what that finds becomes an `@example`.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.postgres import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

"""Keeps the model libraries from reaching for a hub. Imports nothing but the standard library."""

from __future__ import annotations

import os

_SWITCHES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Otherwise transformers warns once per process about things that a random model cannot have.
    "TRANSFORMERS_VERBOSITY": "error",
}


def forbid_hubs() -> None:
    """Turns every download of the model libraries into an error.

    They read these variables when they are imported, so a process that imports them before it builds a model calls this
    first.
    """
    os.environ.update(_SWITCHES)

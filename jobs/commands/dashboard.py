"""`inductor-watch dashboard`: the Streamlit app on a database."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from jobs.options import db_option


@click.command()
@db_option
@click.option("--port", type=click.IntRange(1, 65535), default=8501, help="The port on which it listens.")
def dashboard_command(database: str, port: int) -> None:
    """Open the dashboard (the same as `streamlit run dashboard/app.py`)."""
    # Found, not imported: the dashboard's modules are no part of the command line.
    spec = find_spec("dashboard")
    if spec is None or not spec.submodule_search_locations:
        raise click.ClickException(
            "the dashboard is not installed: run this from a checkout of the repository, see README.md"
        )
    app = Path(spec.submodule_search_locations[0]) / "app.py"
    arguments = [sys.executable, "-m", "streamlit", "run", str(app), "--server.port", str(port)]
    environment = os.environ | {"INDUCTOR_WATCH_DB": database}
    sys.stdout.flush()
    # This process becomes Streamlit: whatever ends it ends the server, and none is left behind.
    os.execve(sys.executable, arguments, environment)  # noqa: S606 - no shell is wanted

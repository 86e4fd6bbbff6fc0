"""`inductor-watch dashboard`: the Streamlit app on a database."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from jobs.options import db_option


@click.command(help="Open the dashboard (the same as `streamlit run dashboard/app.py`).")
@db_option
@click.option("--port", type=click.IntRange(1, 65535), default=8501, show_default=True)
def command(database: str, port: int) -> None:
    """Starts Streamlit and stays until it ends."""
    # Found, not imported: the dashboard's modules are no part of the command line.
    spec = find_spec("dashboard")
    if spec is None or not spec.submodule_search_locations:
        raise click.ClickException("the dashboard is not installed: pip install inductor-watch")
    app = Path(spec.submodule_search_locations[0]) / "app.py"
    arguments = [sys.executable, "-m", "streamlit", "run", str(app), "--server.port", str(port)]
    environment = os.environ | {"INDUCTOR_WATCH_DB": database}
    raise SystemExit(subprocess.run(arguments, env=environment, check=False).returncode)

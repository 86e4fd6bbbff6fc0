"""`inductor-watch mcp`: the database for agents, over the Model Context Protocol."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec

import click

from db.engine import open_store
from jobs.options import db_option, example
from jobs.output.terminal import tell


@click.command(epilog=example("mcp --db inductor-watch.db"))
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF CHECK]")
@click.option("--allow-measure", is_flag=True, help="Let agents run `check`, which measures two refs and stores them.")
@db_option
def mcp_command(options: tuple[str, ...], allow_measure: bool, database: str) -> None:
    """Serve the database to an agent over standard input and output, by the Model Context Protocol.

    An agent's host starts this command itself: docs/agents.md says how. The database is opened for reading.

    What stands behind -- is given to each `check`: `mcp --allow-measure -- --repo ~/pytorch --gpus 0`. An agent chooses
    refs, models, configs and minutes.
    """
    if options and not allow_measure:
        raise click.UsageError("options of `check` need --allow-measure")
    if find_spec("mcp") is None:
        raise click.UsageError("the server needs the library mcp, which is not installed: pip install 'mcp>=2.3,<3'")
    from jobs.agents.check_tool import CheckTool
    from jobs.agents.mcp_server import make_server

    check = CheckTool(database, options if allow_measure else None)
    server = make_server(open_store(database, write=False), check)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, check.quit)
    if sys.stdin.isatty():
        tell("waiting for a client of the Model Context Protocol on standard input (docs/agents.md)")
    server.run("stdio")

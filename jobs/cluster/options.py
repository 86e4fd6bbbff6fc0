"""The options that say who measures a night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from jobs.options import POSITIVE, as_one


@dataclass(frozen=True, slots=True)
class Executing:
    """Who measures; the fields are the names of the options."""

    executor: str = "host"
    address: str | None = None
    tasks: int | None = None

    @property
    def on_cluster(self) -> bool:
        """Whether the nodes of a cluster measure."""
        return self.executor == "ray"

    def check(self, of_a_host: Sequence[str]) -> None:
        """Raises `click.UsageError` for options without effect under this executor; `of_a_host` are those of one host."""
        if self.on_cluster and of_a_host:
            raise click.UsageError(f"{of_a_host[0]} is for this host alone: leave it out, or --executor")
        if not self.on_cluster and self.tasks is not None:
            raise click.UsageError("--tasks goes with --executor ray: leave it out, or see --workers")


executing_options = as_one(
    "executing",
    Executing,
    click.option(
        "--executor",
        type=click.Choice(["host", "ray"]),
        default="host",
        help="Who measures: this host, or the nodes of a Ray cluster, a task a shard of the plan.",
    ),
    click.option(
        "--address",
        envvar="RAY_ADDRESS",
        metavar="HOST:PORT|auto",
        help="With --executor ray: the cluster (or RAY_ADDRESS). [one of this host alone]",
    ),
    click.option("--tasks", type=POSITIVE, help="With --executor ray: shards to cut the night into. [4 a node]"),
)

"""The options that say where torch builds come from and where their environments are kept."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from jobs.builds.environment import Environments, Wishes
from jobs.builds.installer import Origin
from jobs.option_groups import as_one


@dataclass(frozen=True, slots=True)
class Making:
    """How environments are made; the fields are the names of the options."""

    envs: Path
    python: Path | None
    index_url: str | None
    find_links: tuple[str, ...]
    no_index: bool
    packages: tuple[str, ...]
    cuda_builds: bool | None

    @property
    def origin(self) -> Origin:
        """Where packages come from."""
        return Origin(self.index_url, self.find_links, self.no_index)

    def environments(self, device: str | None) -> Environments:
        """The environments for measuring on a device."""
        from jobs.builds.pins import constraints_here, pins_here
        from jobs.pool.device_slots import list_gpus

        cuda = bool(device != "cpu" and list_gpus()) if self.cuda_builds is None else self.cuda_builds
        packages = self.packages or tuple(pins_here())
        constraints = () if self.packages else tuple(constraints_here())
        base = self.python or Path(sys.executable)
        return Environments(self.envs, Wishes(base, self.origin, packages, constraints, cuda))


making_options = as_one(
    "making",
    Making,
    click.option(
        "--envs",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("torch-builds"),
        show_default=True,
        help="Folder of the environments, one a build; made once.",
    ),
    click.option(
        "--python",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="EXE",
        help="The Python to make them with. [this one]",
    ),
    click.option("--index-url", metavar="URL", help="The index that torch comes from, e.g. one of CPU wheels. [pip's]"),
    click.option("--find-links", multiple=True, metavar="PLACE", help="A folder or page of wheels to look at besides."),
    click.option("--no-index", is_flag=True, help="Look at --find-links only."),
    click.option(
        "--with",
        "packages",
        multiple=True,
        metavar="REQUIREMENT",
        help="What each gets besides torch. [click, rich, numpy and transformers, in the versions installed here]",
    ),
    click.option(
        "--cuda-builds/--no-cuda-builds",
        default=None,
        help="Whether torch may bring CUDA's libraries, gigabytes of them. [where there is a GPU]",
    ),
)

"""A night cut into groups of cells, a task each: of like cost, and back on the host that measured them last."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from collector.vocabulary import Cell
from jobs.cluster.engine import Node
from jobs.cluster.request import Spot
from jobs.plan.cost import CostModel
from jobs.plan.schedule import Group, group_of, shares

#: Groups a node that a night is cut into: what is lost with a node, and the wait for the last one, get smaller with more;
#: each starts anew what imports torch.
GROUPS_A_NODE = 4


@dataclass(frozen=True, slots=True)
class CellGroup:
    """The cells of a task, and the id of the node that it would like to run on, or empty."""

    cells: list[Cell]
    home: str = ""


def cut_groups(
    cells: Sequence[Cell], model: CostModel, nodes: Sequence[Node], count: int, last: Mapping[Group, Spot]
) -> list[CellGroup]:
    """About `count` groups, the dearest first; the cells of a model in one phase are in one of them, in the plan's order.

    Where a host among the nodes is known to have measured some of the cells, each node gets its share
    (`jobs.plan.schedule.shares`),
    those cells as far as that leaves nobody much longer than the others; else Ray gives each group to whom is free.

    Raises:
        ValueError: no node, or no group.
    """
    sticky = _homes(nodes, last, {group_of(cell) for cell in cells})
    if not sticky:
        parts = [CellGroup(part) for part in shares(cells, model, count)]
    else:
        each = math.ceil(count / len(nodes))
        parts = [
            CellGroup(part, node.node_id)
            for node, share in zip(nodes, shares(cells, model, len(nodes), sticky), strict=True)
            for part in shares(share, model, each)
        ]
    found = [part for part in parts if part.cells]
    return sorted(found, key=lambda part: -sum(model.estimate(cell).worker_s for cell in part.cells))


def cut_again(cells: Sequence[Cell]) -> list[CellGroup]:
    """What a lost task leaves, a group for each model and phase, so that one which takes its node down is alone next time."""
    found: dict[Group, list[Cell]] = {}
    for cell in cells:
        found.setdefault(group_of(cell), []).append(cell)
    return [CellGroup(part) for part in found.values()]


def _homes(nodes: Sequence[Node], last: Mapping[Group, Spot], groups: Collection[Group]) -> dict[Group, int]:
    hosts = [node.host for node in nodes]
    # Two nodes of one host cannot be told apart by its name.
    places = {host: number for number, host in enumerate(hosts) if hosts.count(host) == 1}
    return {group: places[spot[0]] for group, spot in last.items() if group in groups and spot[0] in places}

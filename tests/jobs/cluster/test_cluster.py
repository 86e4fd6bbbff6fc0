"""A night on a played cluster: how it is cut, and what becomes of its cells when nodes refuse or are lost."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
from click.testing import CliRunner

from collector.bundle import read_bundle
from db.nights import list_nights
from jobs.cli import app
from jobs.cluster import cluster_night
from jobs.cluster.ray_cluster import ClusterError, LostError, Node, connected
from jobs.options import Storage
from jobs.plan.planning import Plan, load_plan
from jobs.pool.child import Request
from jobs.requested_options import RequestedOptions, RunNames
from tests.factories import CONFIGS, cell, new_store, night

CELLS = [cell(f"m{number}", config, device="cpu") for config in CONFIGS for number in range(4)]
NODES = [Node("alpha", "a" * 56, 8, 0), Node("beta", "b" * 56, 8, 0)]


class PlayedCluster:
    """A cluster that measures nothing: a task returns a bundle of synthetic measurements.

    `dying` nodes are lost with their second shard and listed a while longer, `refusing` ones say why they
    cannot measure, a model in `deadly` is lost with its task each time,
    and `bundles` are returned once instead of the right ones.
    """

    def __init__(self, nodes=NODES, dying=(), refusing=None, deadly=(), bundles=None):
        self.alive, self.dying, self.refusing, self.deadly = list(nodes), dying, refusing or {}, deadly
        self.bundles = bundles
        self.tasks, self.started, self.cancelled, self.dead = {}, [], [], []

    def nodes(self):
        return list(self.alive)

    def start(self, node, request):
        request = Request.from_json(json.loads(request))
        self.started.append((node, request))
        self.tasks[len(self.started)] = self._play(node, request, len(self.started))
        return len(self.started)

    def ready(self, handles, timeout_s):
        return list(handles)

    def take(self, handle):
        return next(self.tasks[handle])

    def cancel(self, handle):
        self.cancelled.append(handle)

    def _play(self, node, request, number):
        if node in self.dead:
            self.alive = [other for other in self.alive if other != node]
            raise LostError("TaskUnschedulableError")
        yield {"node": node.host, "note": ""}
        if node.host in self.refusing:
            yield {"bundles": {}, "code": 2, "reason": self.refusing[node.host]}
        if node.host in self.dying and [other for other, _ in self.started].index(node) != number - 1:
            self.dead.append(node)
            raise LostError("NodeDiedError")
        if {item.model for item in request.cells} & set(self.deadly):
            raise LostError("NodeDiedError")
        if self.bundles:
            bundles, self.bundles = self.bundles, None
            yield {"bundles": bundles, "code": 0, "reason": ""}
        with TemporaryDirectory() as folder:
            testbed = {"node": node.host}
            path = night(Path(folder), f"run-{number}", cells=request.cells, night=request.names.night, testbed=testbed)
            yield {"bundles": {path.name: path.read_bytes()}, "code": 0, "reason": ""}


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    """Measures CELLS in four shards; returns the bundles, the number of cells left, and what was printed."""
    monkeypatch.setattr(cluster_night, "probe", lambda _: {"torch_git": "d" * 40})

    def run(cluster, *, fails=None, store=None, plan=None):
        planned = plan or Plan(CELLS, ["x: needs timm"]), RunNames(night="n1")
        executing, storage = cluster_night.Executing("ray", tasks=4), Storage(tmp_path / "runs", not store, store or "")
        how = (executing, None, lambda device: planned, RequestedOptions(), storage, None)
        with pytest.raises(ClusterError, match=fails) if fails else nullcontext():
            cluster_night.measure_night(*how, connect=lambda address: nullcontext(cluster))
        paths = (tmp_path / "runs").glob("run-*.jsonl.gz")
        return [read_bundle(path) for path in sorted(paths)], capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"refusing": {"beta": "torch 2.9 there"}}, "node beta gets no more cells (torch 2.9 there): 3 cells planned"),
        ({"bundles": {"run.jsonl.gz": b"no bundle"}}, "gets no more cells"),
    ],
)
def test_a_node_that_refuses_or_returns_nonsense_gets_no_further_shard(measure, how, reason):
    cluster = PlayedCluster(**how)
    runs, said = measure(cluster)
    assert Counter(item.cell for run in runs for item in run.measurements) == Counter(CELLS)
    assert reason in said
    assert min(Counter(node.host for node, _ in cluster.started).values()) == 1


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (PlayedCluster(refusing=dict.fromkeys(("alpha", "beta"), "no torch there")), "no torch there"),
        (PlayedCluster(nodes=NODES[:1], dying={"alpha"}), "all were lost"),
    ],
)
def test_without_a_node_that_can_measure_the_night_ends(cluster, reason, measure, monkeypatch):
    monkeypatch.setattr("jobs.cluster.cluster_night._PATIENCE_S", 0)
    measure(cluster, fails=f"no node of the cluster is left to measure on: {reason}")


def test_the_store_has_the_whole_night_and_what_was_lost_as_missing(measure, tmp_path):
    engine = new_store(tmp_path / "store.db")
    store = str(tmp_path / "store.db")

    def counts():
        (stored,) = list_nights(engine)
        return sum(run.measured for run in stored.runs), sum(run.planned for run in stored.runs)

    _, said = measure(PlayedCluster(deadly={"m0"}), fails="3 cells were not measured", store=store)
    assert "3 cells never arrived and count as missing" in said
    assert counts() == (9, 12)
    # The same night continued on nodes that stay: only what was lost is measured, and is not missing any more.
    cluster = PlayedCluster()
    cluster.started = [(NODES[0], None)] * 10  # so that its runs have other names
    measure(cluster, store=store, plan=load_plan(tmp_path / "runs" / "n1.plan.json"))
    assert Counter(item.model for _, request in cluster.started[10:] for item in request.cells) == {"m0": 3}
    assert counts() == (12, 12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "3"], "--executor ray"),
        (["--executor", "ray", "--gpus", "all"], "--gpus is for this host"),
        (["--executor", "ray", "--dry-run"], "--dry-run is for this host"),
    ],
)
def test_options_without_effect_and_a_missing_ray_are_refused(words, said, monkeypatch):
    done = CliRunner().invoke(app, ["nightly", *words])
    assert done.exit_code == 2
    assert said in done.output
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(click.UsageError, match="pip install"), connected(None):
        pass

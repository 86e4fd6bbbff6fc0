"""A cluster's night without a cluster: what tasks consist of, and what becomes of their cells when nodes refuse or are lost."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from collector.bundle import BundleWriter, read_bundle
from collector.settings import Settings
from db.runs import list_nights
from jobs.cli import app
from jobs.cluster import session
from jobs.cluster.engine import ClusterError, LostError, Node, Share, check_address, connected, share_of
from jobs.cluster.gathering import Gathering, write_plan
from jobs.cluster.groups import CellGroup, cut_again, cut_groups
from jobs.cluster.night import ClusterNight, Telling
from jobs.cluster.options import Executing
from jobs.cluster.request import Request, known_costs, last_spots
from jobs.cluster.session import Asked, measure_on_cluster
from jobs.cluster.task import follow
from jobs.plan.cost import CostModel
from jobs.plan.planning import Plan, load_plan
from jobs.plan.schedule import group_of
from jobs.pool.runner import Pace, RunNames
from tests.factories import CONFIGS, ENVIRONMENT, cell, header, new_store, night, passing

CELLS = [cell(f"m{number}", config, device="cpu") for config in CONFIGS for number in range(4)]
NODES = [Node("a" * 56, "alpha", 8, 0), Node("b" * 56, "beta", 8, 0)]
REQUEST = Request(CELLS, RunNames(night="n1"), Settings(), Pace(2), "d" * 40, "0.1.0", known=[], last={})


class PlayedCluster:
    """An engine that measures nothing: each task goes to the next free node and says what its cells' outcomes would be.

    `losing` are nodes by how many outcomes they give before they are lost, `refusing` those that say why they cannot, `deaf`
    ones never begin.
    """

    def __init__(self, nodes=NODES, losing=None, refusing=None, deaf=False, garbage=()):
        self.alive, self.losing, self.refusing = list(nodes), dict(losing or {}), dict(refusing or {})
        self.deaf, self.garbage = deaf, list(garbage)
        self.tasks, self.started, self.cancelled = {}, [], []

    def nodes(self):
        return list(self.alive)

    def start(self, request, share, wish):
        handle = len(self.started)
        self.started.append((Request.from_json(json.loads(request)), share, wish))
        self.tasks[handle] = self._play(handle)
        return handle

    def ready(self, handles, timeout_s):
        return [] if self.deaf else list(handles)[:2]

    def take(self, handle):
        try:
            return next(self.tasks[handle])
        except StopIteration:
            return None

    def cancel(self, handle):
        self.cancelled.append(handle)
        self.tasks[handle] = iter(())

    def _play(self, handle):
        request, _, wish = self.started[handle]
        able = [node for node in self.alive if node.node_id not in wish.never]
        node = next((node for node in able if node.node_id == wish.node), able[handle % len(able)])
        yield json.dumps({"node": node.node_id, "name": node.host})
        if node.host in self.refusing:
            yield json.dumps({"error": self.refusing[node.host]})
            return
        run = header(f"run-{handle}", testbed={"node": node.host})
        yield line(run.run_id, {"record": "run", **run.to_json()})
        yield line(run.run_id, {"record": "environment", "environment_id": "e1", "data": ENVIRONMENT})
        for item in request.cells:
            if node.host in self.losing and not self.losing[node.host]:
                self.alive = [other for other in self.alive if other != node] or self.alive
                raise LostError("NodeDiedError")
            if node.host in self.losing:
                self.losing[node.host] -= 1
            if self.garbage:
                yield self.garbage.pop()
            yield line(run.run_id, {"record": "measurement", **passing(item).to_json()})
        yield json.dumps({"done": True})


def line(run_id, record):
    return json.dumps({"run": run_id, "line": record})


def measured_by(engine, folder, groups=None, request=REQUEST, **options):
    """Plays a night of all cells; what was measured where, what was said, and what is left."""
    gathering, said = Gathering(folder, "n1", CELLS), []
    told = Telling(lambda _: None, lambda _: None, said.append)
    played = ClusterNight(engine, Share(8, 0), request, gathering, told, **options)
    played.run(groups or [CellGroup(CELLS[:6]), CellGroup(CELLS[6:])])
    found = {read_bundle(path).header.testbed["node"]: read_bundle(path) for path in gathering.close()}
    return found, said, list(gathering.left.values())


def outcomes(found):
    return Counter(item.cell for run in found.values() for item in run.measurements)


def test_each_testbed_has_one_run_with_the_cells_that_it_measured(tmp_path):
    found, said, left = measured_by(PlayedCluster(), tmp_path, [CellGroup([item]) for item in CELLS])
    assert set(found) == {"alpha", "beta"}
    assert outcomes(found) == Counter(CELLS)
    for run in found.values():
        assert [item.cell for item in run.measurements] == run.planned
        assert run.environments == {"e1": ENVIRONMENT}
        assert (run.header.night, run.finished_at is None, run.damage) == ("n1", False, [])
    assert not said
    assert not left


def test_what_a_lost_node_leaves_is_measured_by_the_other_and_nothing_twice(tmp_path):
    found, said, left = measured_by(PlayedCluster(losing={"beta": 2}), tmp_path)
    assert outcomes(found) == Counter(CELLS)
    assert len(found["beta"].measurements) == 2
    assert said == ["node beta was lost (NodeDiedError): 4 cells planned again"]
    assert not left


def test_a_cell_that_takes_its_node_down_each_time_is_not_tried_for_ever(tmp_path):
    class Deadly(PlayedCluster):
        def _play(self, handle):
            for message in super()._play(handle):
                if "measurement" in message and json.loads(message)["line"]["cell"]["model"] == "m3":
                    raise LostError("NodeDiedError")
                yield message

    found, said, left = measured_by(Deadly(), tmp_path)
    assert {item.model for item in left} == {"m3"}
    assert outcomes(found) == Counter(item for item in CELLS if item.model != "m3")
    assert sum("not tried again" in text for text in said) == len(left) == 3


def test_a_node_that_refuses_gets_no_further_task(tmp_path):
    class Growing(PlayedCluster):
        rounds = 0

        def ready(self, handles, timeout_s):
            # So that a task is ready for the first time when another has just been refused.
            self.rounds += 1
            return list(handles)[: self.rounds]

    engine = Growing(refusing={"beta": "torch 2.9 there"})
    found, said, left = measured_by(engine, tmp_path, [CellGroup([item]) for item in CELLS])
    assert set(found) == {"alpha"}
    assert outcomes(found) == Counter(CELLS)
    assert "torch 2.9 there" in said[0]
    refused_at = next(number for number, (_, _, wish) in enumerate(engine.started) if wish.never)
    assert all(wish.never == {NODES[1].node_id} for _, _, wish in engine.started[refused_at:])
    assert not left


def test_where_all_refuse_the_night_ends_and_says_why(tmp_path):
    class Full(PlayedCluster):
        def _play(self, handle):
            never = self.started[handle][2].never
            if len(never) == len(self.alive):
                return iter(())
            return super()._play(handle)

        def ready(self, handles, timeout_s):
            waiting = {number for number, (_, _, wish) in enumerate(self.started) if len(wish.never) == len(self.alive)}
            return [handle for handle in handles if handle not in waiting or handle in self.cancelled]

    with pytest.raises(ClusterError, match="no node of the cluster is left to measure on: no torch there"):
        measured_by(Full(refusing=dict.fromkeys(("alpha", "beta"), "no torch there")), tmp_path)


@pytest.mark.parametrize(
    "garbage", ["no json", "[1]", '{"run": "x", "line": {"record": "measurement"}}', '{"run": 1, "line": 2}']
)
def test_a_node_that_talks_nonsense_is_left_out(garbage, tmp_path):
    found, said, left = measured_by(PlayedCluster(garbage=[garbage]), tmp_path)
    assert outcomes(found) == Counter(CELLS)
    assert "no line of a bundle" in said[0]
    assert not left


def test_after_the_time_tasks_that_wait_are_not_begun(tmp_path):
    engine = PlayedCluster(deaf=True)
    found, _, left = measured_by(engine, tmp_path, request=replace(REQUEST, until=1.0))
    assert (found, left, engine.cancelled) == ({}, CELLS, [0, 1])


def test_without_any_node_a_night_ends_after_a_while(tmp_path):
    moments = iter(range(0, 1000, 20))
    engine = PlayedCluster(nodes=[Node("c" * 56, "small", 2, 0)], deaf=True)
    with pytest.raises(ClusterError, match="all were lost"):
        measured_by(engine, tmp_path, clock=lambda: next(moments))
    assert sorted(set(engine.cancelled)) == [0, 1]


def test_a_night_goes_on_where_it_was_cut_off(tmp_path):
    writer = BundleWriter(tmp_path, header("first", night="n1", testbed={"node": "alpha"}))
    writer.plan(CELLS[0])
    writer.measurement(passing(CELLS[0]))
    writer.plan(CELLS[1])
    writer.abandon()  # killed between a promise and its outcome
    night(tmp_path, "other", cells=CELLS)
    found, _, left = measured_by(PlayedCluster(nodes=NODES[:1]), tmp_path)
    assert outcomes(found) == Counter(CELLS)
    assert found["alpha"].header.run_id == "first"
    assert Counter(found["alpha"].planned) == Counter(CELLS)
    assert not left
    again = Gathering(tmp_path, "n1", CELLS)
    assert not again.left
    assert [path.name for path in again.close()] == ["first.jsonl.gz"]


def test_groups_are_of_like_cost_the_dearest_first_and_no_model_is_in_two():
    seconds = {f"m{number}": 10.0 * (1 + number) for number in range(4)}
    model = CostModel.learn([passing(item, wall_s=seconds[item.model], details={}) for item in CELLS])
    found = cut_groups(CELLS, model, NODES, 3, {})
    assert Counter(item for group in found for item in group.cells) == Counter(CELLS)
    assert [sorted({item.model for item in group.cells}) for group in found] == [["m3"], ["m2"], ["m0", "m1"]]
    assert {group.home for group in found} == {""}


def test_a_model_goes_back_to_the_host_that_measured_it_last():
    last = {group_of(item): ("beta" if item.model in ("m0", "m1") else "alpha", None) for item in CELLS}
    found = cut_groups(CELLS, CostModel.learn([]), NODES, 4, last)
    home = {item.model: group.home for group in found for item in group.cells}
    assert home == {"m0": "b" * 56, "m1": "b" * 56, "m2": "a" * 56, "m3": "a" * 56}
    twins = [replace(node, host="same") for node in NODES]
    assert {group.home for group in cut_groups(CELLS, CostModel.learn([]), twins, 4, last)} == {""}


def test_what_is_left_of_a_lost_task_is_a_group_for_each_model():
    assert [{item.model for item in group.cells} for group in cut_again(CELLS)] == [{"m0"}, {"m1"}, {"m2"}, {"m3"}]


@given(st.lists(st.integers(0, 64), min_size=1, max_size=8), st.sampled_from(["cpu", "cuda"]))
def test_a_task_has_its_node_to_itself(counts, device):
    nodes = [Node(str(number), "host", count * 4, count) for number, count in enumerate(counts)]
    if not any(counts):
        with pytest.raises(ClusterError):
            share_of(nodes, device)
        return
    share = share_of(nodes, device)
    taking = [node for node in nodes if share.fits(node)]
    assert taking
    for node in taking:
        assert 2 * share.cpus > node.cpus or 2 * share.gpus > node.gpus
    # Of like nodes all take part, and whole.
    if len(set(counts)) == 1:
        assert len(taking) == len(nodes)
        assert share == Share(nodes[0].cpus, nodes[0].gpus if device == "cuda" else 0)


def test_a_request_says_the_same_on_the_other_side():
    model = CostModel.learn([passing(item, wall_s=9.0, details={"device_bytes": 5e9}) for item in CELLS])
    whole = replace(REQUEST, known=known_costs(CELLS, model), last={group_of(CELLS[0]): ("alpha", 1)}, until=5.0)
    read = Request.from_json(json.loads(json.dumps(whole.only(CELLS[:1]).to_json())))
    assert read.cells == CELLS[:1]
    assert (read.names, read.pace, read.settings, read.until) == (REQUEST.names, Pace(2), Settings(), 5.0)
    assert read.last == {group_of(CELLS[0]): ("alpha", 1)}
    there = CostModel.learn(read.known).estimate(CELLS[0])
    assert (there.worker_s, there.memory_bytes) == (9.0, 5_000_000_000)
    assert read.left_s < 0


def test_where_cells_were_measured_last_is_learned_from_the_newest_run(tmp_path):
    for number, name in enumerate(("alpha", "beta")):
        night(tmp_path, name, cells=CELLS, testbed={"node": name, "gpu_index": number})
    runs = [read_bundle(path) for path in sorted(tmp_path.glob("*.gz"), reverse=True)]
    assert set(last_spots(runs).values()) == {("beta", 1)}


def test_the_driver_stores_all_of_a_night_and_promises_what_was_lost(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "probe", lambda _: {"torch_git": "d" * 40})
    engine = new_store(tmp_path / "store.db")
    asked = Asked(RunNames(night="n1"), Settings(), Pace(2), tmp_path / "runs", str(tmp_path / "store.db"))

    class Deadly(PlayedCluster):
        def _play(self, handle):
            for message in super()._play(handle):
                if "measurement" in message and json.loads(message)["line"]["cell"]["model"] == "m0":
                    raise LostError("NodeDiedError")
                yield message

    with pytest.raises(ClusterError, match=r"3 cells were not measured.*--plan .*n1\.plan\.json goes on"):
        measure_on_cluster(Deadly(), Plan(CELLS, ["x: needs timm"]), asked, Console(width=500))
    (stored,) = list_nights(engine)
    assert sum(run.measured for run in stored.runs) == 9
    assert sum(run.planned for run in stored.runs) == 12
    said = capsys.readouterr().out
    assert "night n1: 12 of 12 cells" in said
    assert "3 cells never arrived and count as missing" in said
    # The same night once more, on nodes that stay: only what was lost is measured, and the promise is dropped.
    whole = PlayedCluster()
    measure_on_cluster(whole, load_plan(tmp_path / "runs" / "n1.plan.json"), asked, Console(width=500))
    assert Counter(item.model for request, _, _ in whole.started for item in request.cells) == {"m0": 3}
    (stored,) = list_nights(engine)
    assert (sum(run.measured for run in stored.runs), sum(run.planned for run in stored.runs)) == (12, 12)


def test_a_plan_file_says_its_night_and_how_to_measure(tmp_path):
    path = write_plan(tmp_path, "n1", Plan(CELLS, ["x: needs timm"]))
    read = load_plan(path)
    assert (read.cells, read.night) == (CELLS, "n1")


@pytest.mark.parametrize(
    ("address", "kind", "said"),
    [
        ("ray://host:10001", click.UsageError, "HOST:PORT"),
        ("host", click.UsageError, "HOST:PORT"),
        ("127.0.0.1:1", ClusterError, "no Ray cluster at 127.0.0.1:1"),
        ("127.0.0.1:99999", ClusterError, "no Ray cluster"),
    ],
)
def test_an_address_where_no_cluster_is_is_said_at_once(address, kind, said):
    with pytest.raises(kind, match=said):
        check_address(address)


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(click.UsageError, match="pip install"), connected(None):
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "3"], "--executor ray"),
        (["--executor", "ray", "--gpus", "all"], "--gpus"),
        (["--executor", "ray", "--dry-run"], "--dry-run"),
        (["--executor", "slurm"], "ray"),
    ],
)
def test_options_that_say_nothing_are_refused(words, said):
    done = CliRunner().invoke(app, ["nightly", *words])
    assert done.exit_code == 2
    assert said in done.output
    assert Executing().on_cluster is False


def test_a_tasks_process_ends_with_its_task_and_says_how_it_ended():
    script = "import sys, json; sys.stdin.readline(); print(json.dumps(dict(run='x')), flush=True); {}"
    python = [sys.executable, "-c"]
    done = list(follow([*python, script.format("pass")], "{}"))
    assert done == ['{"run": "x"}', '{"done": true}']
    failed = list(follow([*python, script.format("sys.exit('inductor-watch: no torch there')")], "{}"))
    assert json.loads(failed[-1]) == {"error": "no torch there"}
    killed = f"import os; os.kill(os.getpid(), {signal.SIGKILL.value})"
    assert list(follow([*python, script.format(killed)], "{}")) == ['{"run": "x"}']
    waiting = follow([*python, script.format("print(len(sys.stdin.read()), flush=True)")], "{}")
    assert next(waiting) == '{"run": "x"}'
    waiting.close()  # it would hang here if the process were not told to end

"""The rounds of a check, with played measurements: who is measured in which order, how often, and what comes out."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from collector.bundle import CENSUS
from collector.census.gpu_models import CensusError
from collector.code import Code
from collector.machine.environment import environment_id
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Status
from db.engine import open_store
from db.ingest import ingest_bundle
from jobs.checking import check_sides, rounds
from jobs.checking.check_sides import CheckedSide, CodeAnswer, OtherOption
from jobs.checking.rounds import Check
from jobs.commands.check import build_answer
from jobs.options import Storage
from jobs.pool import runner
from jobs.pool.gpu_scheduler import DeviceSlot, LostDeviceError
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions, RunNames
from tests.factories import at, cell, failing, header, passing, write_bundle

CELLS = [cell(f"model{number}") for number in range(8)]
FAIL_ON = frozenset({"regressed", "broke"})


class Played:
    """Plays the part of `measure_and_store`, and keeps (side, what, models) of each pass.

    `slower` and `compiling` multiply a model's latency and compile time on the new side, `other` are the models whose code
    differs, `broken` those that fail there, `wrong` those that compute
    something else there, `breaks` the graph breaks of a model there. At pass `ends_at` it is interrupted. The first pass
    measures no more than `first` cells.
    """

    def __init__(self, slower=(), compiling=(), other=(), broken=(), wrong=(), breaks=(), ends_at=0, first=99):
        self.wrong = wrong
        self.breaks = dict(breaks)
        self.slower, self.compiling, self.other, self.broken = dict(slower), dict(compiling), other, broken
        self.ends_at, self.first = ends_at, first
        self.tuned: set[str] = set()
        self.passes: list[tuple[str, str, list[str]]] = []
        self.programs: list[str] = []

    def __call__(self, plan, testbeds, names, settings, folder, database):
        side = names.night.partition("-")[2]
        what = "compile" if settings.code_only else "time"
        self.passes.append((side, what, [item.model[-1] for item in plan.cells]))
        self.programs.append(Path(settings.compiled).name)
        number = len(self.passes)
        head = header(f"run{number}", minutes=number, night=names.night, branch=names.branch, commit=names.commit)
        measured = plan.cells if self.passes[1:] else plan.cells[: self.first]
        results = [self._measured(item, side, number, settings.code_only) for item in measured]
        is_cut = number == self.ends_at
        codes = [(Code(code_id, ()), {}) for code_id in {item.code_id for item in results} if code_id]
        path = write_bundle(folder, head, results, closed=not is_cut, codes=codes)
        if is_cut:
            raise KeyboardInterrupt
        if database:
            ingest_bundle(open_store(database, write=True), path)
        return [], SimpleNamespace(measured={item.cell_id for item in measured})

    def _measured(self, item, side, number, code_only):
        is_new = side == "new"
        if is_new and item.model in self.broken:
            return failing(item, minutes=number)
        if is_new and item.model in self.wrong and not code_only:
            return failing(item, Status.FAIL_ACCURACY, minutes=number, code_id=f"{item.model}-other")
        noise = random.Random(f"{number}/{item.model}")
        slower = self.slower.get(item.model, 1.0) if is_new else 1.0
        found = passing(item, minutes=number, seed=number, slower=slower * noise.uniform(0.998, 1.002))
        compiling = self.compiling.get(item.model, 1.0) if is_new else 1.0
        metrics = found.metrics | {"compile_cold_s": 10 * compiling * noise.uniform(0.99, 1.01)}
        if code_only:
            metrics = {"compile_cold_s": metrics["compile_cold_s"]} if item.model in self.tuned else {}
        metrics["graph_breaks"] = self.breaks.get(item.model, 0.0) if is_new else 0.0
        self.tuned.add(item.model)
        code_id = f"{item.model}{'-other' * (is_new and item.model in self.other)}"
        return replace(found, metrics=metrics, samples={} if code_only else found.samples, code_id=code_id)


class PlayedCensus:
    """Plays the part of `CodeCensus`: `other` are the models with other code, `unknown` those whose code is not known.

    After `ends_after` answers it is interrupted, or fails where `fails` says how.
    """

    def __init__(self, other=(), unknown=(), ends_after=99, fails="", on_new=None):
        self.other, self.unknown, self.ends_after, self.fails = other, unknown, ends_after, fails
        self.on_new = on_new or {}

    def ask(self, cells, until):
        for number, item in enumerate(cells):
            if number == self.ends_after:
                raise CensusError(self.fails) if self.fails else KeyboardInterrupt
            cells = {"base": item, "new": self.on_new.get(item.cell_id, item)}
            sides = [self._outcome(one, side) for side, one in cells.items()]
            yield CodeAnswer(item, *sides)

    def _outcome(self, item, side):
        code_id = f"{item.model}{'-other' * (side == 'new' and item.model in self.other)}"
        facts = {"known": item.model not in self.unknown, "questions": []}
        environment = {"census": "H100", "device": "cuda", "torch_git": "a", "source": side}
        measurement = passing(item, minutes=0, status=Status.NOT_CHECKED, metrics={}, samples={}, code_id=code_id)
        measurement = replace(measurement, details={CENSUS: facts}, environment_id=environment_id(environment))
        return Outcome(measurement, environment, code=Code(code_id, ()).to_json())


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Makes a check of `CELLS` whose passes are played."""

    def make(played, acting=(), seconds=600.0, census=None, workers=8):
        monkeypatch.setattr(rounds, "measure_and_store", played)
        monkeypatch.setattr(runner, "now", lambda: at(0))  # played runs are of another day
        monkeypatch.setattr(check_sides, "now", lambda: at(60))
        database = str(tmp_path / "store.db")
        open_store(database, write=True).dispose()
        names = [RunNames(branch=word, commit=word[0] * 40, night=f"n-{word}") for word in ("base", "new")]
        testbed = Testbed(DeviceSlot([[0]]), {"device": "cuda"}, ExecutionOptions(workers, start="spawn"))
        sides = [CheckedSide(one.branch, one.branch, one, [testbed]) for one in names]
        storage = Storage(tmp_path / "runs", False, database)
        settings = Settings(shared_tuning=str(tmp_path / "tuning"))
        return Check(*sides, CELLS, settings, storage, time.monotonic() + seconds, acting, census)

    return make


def answer(check):
    return build_answer(check, ["torch/a.py"], FAIL_ON, 1.0, False)


def test_only_other_code_is_timed_in_turn_until_it_is_decided(checked, capsys):
    played = Played(slower={"model3": 1.1}, other=("model3", "model5"))
    check = checked(played)
    check.run()
    everything = list("01234567")
    assert played.passes[:2] == [(side, "compile", everything) for side in ("base", "new")]
    # The base tuned for both: it compiles once more at the end.
    assert played.passes[-1] == ("base", "compile", [model for model in everything if model not in "35"])
    later = played.passes[2:-1]
    assert later[:2] == [("new", "time", ["3", "5"]), ("base", "time", ["3", "5"])]
    assert [side for side, _, _ in later[2:4]] == ["base", "new"]
    assert all(what == "time" and set(models) <= {"3", "5"} for _, what, models in later)
    report, told = answer(check)
    assert (told.exit_code, told.cells, told.same_code, told.timed, told.open) == (1, 8, 6, 2, 0)
    assert report.counts == {"regressed": 1, "unchanged": 7}
    assert [row.repro.split()[:4] for row in report.rows] == [["inductor-watch", "check", "base", "new"]]
    errors = capsys.readouterr().err
    assert "regressed: huggingface/model3" in errors
    assert "8 decided, 0 open, 1 regressed" in errors


def test_a_compile_time_that_doubles_is_found_without_timing(checked):
    played = Played(compiling={"model2": 2.0})
    check = checked(played)
    check.run()
    assert {what for _, what, _ in played.passes} == {"compile"}
    assert played.passes[2] == ("base", "compile", list("01234567"))
    assert [models for _, _, models in played.passes[3:]] == [["2"]] * 4
    report, told = answer(check)
    assert report.counts == {"regressed": 1, "unchanged": 7}
    assert (told.exit_code, told.same_code, told.timed) == (1, 8, 0)
    assert [row.finding.metric for row in report.rows] == ["compile_cold_s"]


def test_a_compile_time_that_few_rounds_show_fails_nothing(checked):
    check = checked(Played(compiling={"model2": 2.0}))
    check.run()
    check.compiled[CELLS[2].cell_id] = 3
    report, told = answer(check)
    assert report.counts["regressed"] == 1
    assert (told.exit_code, told.reason) == (
        3,
        "compile time changed in 1 cell, not yet confirmed: raise --minutes",
    )


@pytest.mark.parametrize(("factor", "exit_code"), [(2.0, 3), (0.5, 0)])
def test_an_undecided_longer_compile_time_is_too_little(checked, factor, exit_code):
    check = checked(Played(compiling={"model2": factor}, ends_at=4))
    with pytest.raises(KeyboardInterrupt):
        check.run()
    _, told = answer(check)
    assert (told.open, told.exit_code) == (1, exit_code)


def test_more_graph_breaks_fail_without_a_timing(checked):
    played = Played(other=("model4",), breaks={"model4": 6.0})
    check = checked(played)
    check.run()
    told = answer(check)[1]
    assert told.exit_code == 1
    assert told.reason == "1 cell has more graph breaks (0 -> 6)"


def test_everything_is_timed_where_files_act_at_run_time(checked):
    check = checked(Played(), acting=["torch/_inductor/runtime/hints.py"])
    check.run()
    report, told = answer(check)
    assert (told.exit_code, told.same_code, told.timed) == (0, 0, 8)
    assert "torch/_inductor/runtime/hints.py" in " ".join(told.lines())
    assert report.counts == {"unchanged": 8}


def test_cells_left_by_the_first_round_are_timed_after_the_others(checked):
    played = Played(first=3)
    check = checked(played, acting=["torch/_inductor/runtime/hints.py"])
    check.run()
    models = ["".join(models) for _, _, models in played.passes]
    assert models[:2] == ["01234567", "012"]
    later = models.index("34567")
    assert later > 3 and set(models[2:later]) == {"012"}
    assert answer(check)[0].counts == {"unchanged": 8}


def test_what_computes_something_else_is_broken_and_not_flaky(checked):
    played = Played(other=("model1",), wrong=("model1",))
    check = checked(played)
    check.run()
    assert [side for side, what, _ in played.passes if what == "time"] == ["new", "base", "base", "new"]
    report, told = answer(check)
    assert (report.counts["broke"], told.exit_code) == (1, 1)


def test_an_interruption_keeps_the_pass_that_it_cut(checked):
    check = checked(Played(other=("model3",), ends_at=4))
    with pytest.raises(KeyboardInterrupt):
        check.run()
    report, told = answer(check)
    timed = {one.cell.model: "compiled_ms" in one.new.values for one in report.comparison.cells}
    assert timed == {item.model: item.model == "model3" for item in CELLS}
    assert (told.open, told.exit_code) == (1, 3)
    assert told.reason == "1 cell to time and none of them decided: raise --minutes"


def test_what_the_census_decides_is_not_measured(checked, capsys):
    played = Played(slower={"model3": 1.1}, other=("model3",))
    check = checked(played, census=PlayedCensus(other=("model3",)))
    check.compares_compiling = False
    check.run()
    assert {(what, *models) for _, what, models in played.passes} == {("time", "3")}
    report, told = answer(check)
    assert (told.exit_code, told.cells, told.census, told.same_code, told.timed, told.open) == (1, 8, 7, 7, 1, 0)
    assert report.counts == {"regressed": 1, "unchanged": 7}
    errors = capsys.readouterr().err
    assert "unchanged: huggingface/model0 inference bfloat16 cuda bs8 default, same code" in errors
    assert "census: 7 unchanged, 1 with other code, 0 not known" in errors


def test_code_that_is_not_known_is_compiled_after_other_code_is_timed(checked):
    played = Played(other=("model3",))
    check = checked(played, census=PlayedCensus(other=("model3",), unknown=("model1", "model2")))
    check.compares_compiling = False
    check.run()
    first = {tuple(models): what for _, what, models in reversed(played.passes)}
    assert (first["3",], first["1", "2"]) == ("time", "compile")
    order = [models for _, _, models in played.passes]
    assert order.index(["3"]) < order.index(["1", "2"])
    assert answer(check)[0].counts == {"unchanged": 8}


def test_compile_times_of_some_cells_of_equal_code_are_compared_at_the_end(checked):
    played = Played(compiling={f"model{number}": 2.0 for number in range(8)})
    played.tuned.update(f"model{number}" for number in range(8))
    check = checked(played, census=PlayedCensus())
    check.run()
    assert {(what, *models) for _, what, models in played.passes} == {("compile", "0", "1", "2", "3")}
    report, told = answer(check)
    assert (told.exit_code, told.census) == (1, 8)
    assert report.counts == {"regressed": 4, "unchanged": 4}


def test_what_the_census_decided_before_an_interruption_is_reported(checked):
    check = checked(Played(), census=PlayedCensus(other=("model1",), ends_after=3))
    with pytest.raises(KeyboardInterrupt):
        check.run()
    report, told = answer(check)
    assert report.counts == {"unchanged": 2, "inconclusive": 1, "missing": 5}
    assert (told.exit_code, told.census, told.open) == (3, 2, 1)


def test_what_the_census_decided_is_stored_where_the_gpu_is_lost(checked, monkeypatch):
    check = checked(Played(), census=PlayedCensus(other=("model1",)))
    monkeypatch.setattr(check, "_measure", Mock(side_effect=LostDeviceError("the GPU no longer answers")))
    with pytest.raises(LostDeviceError):
        check.run()
    assert answer(check)[0].counts == {"unchanged": 7, "inconclusive": 1}


def test_a_compile_that_one_side_lacks_takes_no_answer_back(checked):
    played = Played(ends_at=2)
    check = checked(played, census=PlayedCensus())
    with pytest.raises(KeyboardInterrupt):
        check.run()
    assert answer(check)[0].counts == {"unchanged": 8}


def test_as_many_cells_as_workers_are_decided_before_the_next_begin(checked):
    played = Played(slower={"model0": 1.2, "model1": 1.2}, other=[item.model for item in CELLS])
    check = checked(played, acting=["torch/_inductor/runtime/hints.py"], workers=2)
    check.run()
    first = [(side, "".join(models)) for side, _, models in played.passes[:6]]
    assert first == [("base", "01"), ("new", "01"), ("new", "01"), ("base", "01"), ("base", "23"), ("new", "23")]
    assert answer(check)[0].counts == {"regressed": 2, "unchanged": 6}


def test_a_later_round_finds_the_programs_of_the_first(checked):
    played = Played(other=("model3",), slower={"model3": 1.2}, compiling={"model2": 2.0})
    check = checked(played)
    check.run()
    passes = list(zip(played.passes, played.programs, strict=True))
    assert all(kept == side for (side, what, _), kept in passes if what == "time")
    assert [kept for (_, what, _), kept in passes if what == "compile"][:2] == ["base", "new"]
    assert {kept for (_, what, _), kept in passes[2:] if what == "compile"} == {""}
    assert check.compiled[CELLS[3].cell_id] == 1, "the rounds that timed it compiled nothing"


def test_an_option_is_judged_on_the_cells_of_base(checked, monkeypatch, capsys):
    monkeypatch.setattr(check_sides, "check_config", lambda *_: None)
    played = Played(slower={"model3": 1.2}, other=("model3",))
    check = checked(played)
    check.other, check.compares_compiling = OtherOption.parse("+combo_kernels=true"), False
    check.census = PlayedCensus(other=("model3",), on_new=check.on_new)
    check.run()
    assert {(what, *models) for _, what, models in played.passes} == {("time", "3")}
    report, told = answer(check)
    assert (told.exit_code, told.census, told.timed, told.open) == (1, 7, 1, 0)
    assert report.counts == {"regressed": 1, "unchanged": 7}
    (row,) = report.rows
    assert "default+combo_kernels=true" in row.cell or "combo_kernels=true" in row.cell
    assert row.repro.startswith("inductor-watch check base --against +combo_kernels=true --suite huggingface")
    assert "--config default " in row.repro
    assert told.lines()[0] == "new is base with +combo_kernels=true"
    assert "unchanged: huggingface/model0 inference bfloat16 cuda bs8 default, same code" in capsys.readouterr().err


def test_without_a_census_everything_is_compiled_first(checked, capsys):
    played = Played()
    check = checked(played, census=PlayedCensus(ends_after=0, fails="no C compiler"))
    check.run()
    assert played.passes[0] == ("base", "compile", list("01234567"))
    assert "no census: no C compiler" in capsys.readouterr().err

"""The rounds of a check, with played measurements: who is measured in which order, how often, and what comes out."""

import random
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.compare.cell_comparison import Outcome as Verdict
from collector.bundle import CENSUS
from collector.census.gpu_models import CensusError
from collector.code import Code
from collector.machine.environment import environment_id
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import CHECKED_BY, UNCHECKED, Config, Stage, Status
from db.engine import open_store
from jobs.checking import check_sides, rounds
from jobs.checking.check_sides import CheckedSide, CodeAnswer, OtherOption
from jobs.checking.deciding import SETTLED
from jobs.checking.rounds import Check
from jobs.commands.check import build_answer
from jobs.options import Storage
from jobs.pool import runner
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions, RunNames
from tests.factories import ENVIRONMENT, at, cell, failing, passing

CELLS = [cell(f"model{number}") for number in range(8)]
FAIL_ON = frozenset({"regressed", "broke"})
ACTING = ["torch/_inductor/runtime/hints.py"]


class Played:
    """Plays the part of the device and its scheduler, and keeps (side, what, model) of each turn that began, in order.

    `slower` and `compiling` multiply a model's latency and compile time on the new side, `other` are the models whose code
    differs, `wrong` those that compute something else there, `breaks` the graph breaks of a model there. It is interrupted
    once `ends_when` of it is true. A cell has compiled as soon as it began. The latencies of the first process that times a model
    in `disturbed` are far off, and it measures again after its outcome.
    """

    def __init__(self, slower=(), compiling=(), other=(), wrong=(), breaks=(), ends_when=lambda _: False, disturbed=()):
        self.disturbed = set(disturbed)
        self.slower, self.compiling, self.breaks = dict(slower), dict(compiling), dict(breaks)
        self.other, self.wrong, self.ends_when = other, wrong, ends_when
        self.tuned: set[str] = set()
        self.turns: list[tuple[str, str, str]] = []
        self.programs: list[str] = []
        self.jobs = []
        self.workers, self.under_way, self.done = 8, [], []
        self.neighbours = ()

    @property
    def free_places(self):
        return self.workers - len(self.under_way)

    @property
    def ended(self):
        return len(self.done)

    @property
    def busy(self):
        return bool(self.under_way)

    @property
    def busy_cores(self):
        return len(self.under_way)

    def add(self, job):
        assert self.free_places > 0
        self.under_way.append(job)
        what = "compile" if job.settings.code_only else "time"
        self.turns.append((job.server, what, job.cell.model[-1]))
        self.programs.append(Path(job.settings.compiled).name)
        self.jobs.append(job)

    def has(self, job):
        return job in self.under_way

    def stage_of(self, job):
        return Stage.TIMING if job in self.under_way else None

    def turn(self):
        if self.under_way:
            job = self.under_way.pop(0)
            self.done.append(("compile" if job.settings.code_only else "time", job.cell.model[-1]))
            measurement = self._measured(job.cell, job.server, self.ended, job.settings.code_only)
            code = {"code": Code(measurement.code_id, ()).to_json()} if measurement.code_id else {}
            if job.settings.unchecked:
                measurement.details[CHECKED_BY] = UNCHECKED
            if job.cell.model in self.disturbed and not job.settings.code_only:
                self.disturbed.remove(job.cell.model)
                measurement.metrics["compiled_kernel_ms"] *= 1.5
                self.under_way.append(job)
            yield 0, job, Outcome(measurement, ENVIRONMENT, **code)
        if self.ends_when(self):
            raise KeyboardInterrupt

    def tell_under_way(self, head):
        pass

    def close(self):
        pass

    def of(self, model, what):
        """The sides whose turns of a kind a model had."""
        return [side for side, kind, name in self.turns if (kind, name) == (what, model)]

    def kinds(self):
        """What was done with which model."""
        return {(what, model) for _, what, model in self.turns}

    def _measured(self, item, side, number, code_only):
        is_new = side == "new"
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

    After `ends_after` answers it is interrupted, or fails where `fails` says how. `pauses` come before each answer.
    """

    def __init__(self, other=(), unknown=(), ends_after=99, fails="", on_new=None, pauses=0):
        self.other, self.unknown, self.ends_after, self.fails = other, unknown, ends_after, fails
        self.on_new, self.pauses, self.is_over, self.most = on_new or {}, pauses, False, []

    def leave(self, cores, most=None):
        self.most.append(most)

    def ask(self, cells, until):
        for number, item in enumerate(cells):
            if number == self.ends_after:
                raise CensusError(self.fails) if self.fails else KeyboardInterrupt
            yield from [None] * self.pauses
            cells = {"base": item, "new": self.on_new.get(item.cell_id, item)}
            sides = [self._outcome(one, side) for side, one in cells.items()]
            yield CodeAnswer(item, *sides)
        self.is_over = True

    def _outcome(self, item, side):
        code_id = f"{item.model}{'-other' * (side == 'new' and item.model in self.other)}"
        facts = {"known": item.model not in self.unknown, "questions": []}
        environment = {"census": "H100", "device": "cuda", "torch_git": "a", "source": side}
        measurement = passing(item, minutes=0, status=Status.NOT_CHECKED, metrics={}, samples={}, code_id=code_id)
        measurement = replace(measurement, details={CENSUS: facts}, environment_id=environment_id(environment))
        return Outcome(measurement, environment, code=Code(code_id, ()).to_json())


class AtOnce(ThreadPoolExecutor):
    """An executor without a thread."""

    def submit(self, do, *arguments):
        done = Future()
        done.set_result(do(*arguments))
        return done


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Makes a check of so many of `CELLS` whose measurements are played."""

    def make(played, acting=(), seconds=600.0, census=None, workers=8, count=8, compares_compiling=True):
        played.workers = workers
        monkeypatch.setattr(rounds, "scheduler_for", lambda *_: played)
        monkeypatch.setattr(rounds, "Pool", lambda *_: played)
        monkeypatch.setattr(rounds, "server_for", lambda testbed, *_: testbed.slot.variables["side"])
        monkeypatch.setattr(rounds, "ThreadPoolExecutor", AtOnce)
        monkeypatch.setattr(rounds, "cell_variables", lambda _: {})
        monkeypatch.setattr(runner, "now", lambda: at(played.ended))  # played runs are of another day
        monkeypatch.setattr(check_sides, "now", lambda: at(60))
        database = str(tmp_path / "store.db")
        open_store(database, write=True).dispose()
        environment = {"device": "cuda", "torch": "2.13.0", "torch_git": "a"}
        sides = []
        for word in ("base", "new"):
            names = RunNames(branch=word, commit=word[0] * 40, night=f"n-{word}")
            where, execution = DeviceSlot([[0]], {"side": word}), ExecutionOptions(workers, start="spawn")
            sides.append(CheckedSide(word, word, names, [Testbed(where, environment, execution)]))
        storage = Storage(tmp_path / "runs", False, database)
        settings = Settings(shared_tuning=str(tmp_path / "tuning"))
        check = Check(*sides, CELLS[:count], settings, storage, time.monotonic() + seconds, acting, census)
        check.compares_compiling = compares_compiling
        return check

    return make


def answer(check):
    return build_answer(check, ["torch/a.py"], FAIL_ON, 1.0, False)


def test_only_other_code_is_timed_in_turn_until_it_is_decided(checked, capsys):
    played = Played(slower={"model3": 1.1}, other=("model3", "model5"))
    check = checked(played)
    check.run()
    programs = list(zip(played.turns, played.programs, strict=True))
    assert all(kept == side for (side, what, _), kept in programs if what == "time"), "a later round finds the first's"
    of_other = [kept for (_, what, model), kept in programs if (what, model) == ("compile", "2")]
    assert of_other == ["base", "new", ""]
    assert check.compiled[CELLS[3].cell_id] == 1, "the rounds that timed it compiled nothing"
    timed = [
        bool(job.settings.passed_code) for job in played.jobs if not job.settings.code_only and job.cell == CELLS[3]
    ]
    assert timed == [False, False, True, True], "a program's outputs are checked once on each side"
    assert not any(bool(job.settings.passed_code) for job in played.jobs if job.settings.code_only)
    assert played.turns[:8] == [(side, "compile", model) for model in "0123" for side in ("base", "new")]
    for model in "35":
        assert played.of(model, "compile") == ["base", "new"]
        assert played.of(model, "time")[:4] == ["new", "base", "base", "new"]
    for model in "012467":  # the base tuned for both: it compiles once more
        assert (played.of(model, "compile"), played.of(model, "time")) == (["base", "new", "base"], [])
    report, told = answer(check)
    assert (told.exit_code, told.cells, told.same_code, told.timed, told.open) == (1, 8, 6, 2, 0)
    assert report.counts == {"regressed": 1, "unchanged": 7}
    assert [row.repro.split()[:4] for row in report.rows] == [["inductor-watch", "check", "base", "new"]]
    errors = capsys.readouterr().err
    assert "regressed: huggingface/model3" in errors
    assert "8 decided, 0 open, 1 regressed" in errors


def test_a_later_check_finds_programs_and_what_passed(checked, tmp_path):
    for code in ("", "model0"):
        check = checked(played := Played(), acting=ACTING, count=1)
        check.cache = tmp_path / "cache"
        check.run()
        first = [job.settings for job in played.jobs[:2]]
        assert [settings.passed_code for settings in first] == [code] * 2
        assert len({settings.compiled for settings in first} & {*map(str, tmp_path.glob("cache/programs/*"))}) == 2


def test_an_undecided_shorter_compile_time_fails_nothing(checked):
    check = checked(Played(compiling={"model2": 0.5}, ends_when=lambda one: one.ended == 13), count=4)
    with pytest.raises(KeyboardInterrupt):
        check.run()
    _, told = answer(check)
    assert (told.open, told.exit_code) == (1, 0)


def test_wrong_results_and_more_graph_breaks_fail(checked):
    played = Played(other=("model1", "model4"), wrong=("model1",), breaks={"model4": 6.0})
    check = checked(played, census=PlayedCensus(other=("model1", "model4")), count=5, compares_compiling=False)
    check.run()
    assert played.of("1", "time") == ["base", "new", "new", "base"], "it is not flaky"
    timed = [bool(job.settings.passed_code) for job in played.jobs if job.cell.model == "model1"]
    assert timed == [False, False, False, True], "what fails its check is checked again"
    report, told = answer(check)
    assert (report.counts["broke"], told.exit_code) == (1, 1)
    assert told.reason == "1 cell has more graph breaks (0 -> 6); 1 broke"


@pytest.mark.parametrize("few", [1, 3])
def test_outputs_of_base_are_checked_only_where_new_fails(checked, monkeypatch, few):
    monkeypatch.setattr(rounds, "_FEW", few)
    check = checked(played := Played(wrong=("model1",)), acting=ACTING, count=3)
    check.run()
    spared, is_first = defaultdict(list), few < 3
    for job in played.jobs:
        spared[job.server, job.cell.model].append(job.settings.unchecked)
    assert spared["base", "model1"] == [is_first, False], "new's outputs are a change only if base's pass"
    assert {*spared["base", "model0"]} == {is_first} and not any(spared["new", "model0"] + spared["new", "model1"])
    report, told = answer(check)
    assert (report.counts["broke"], told.unchecked, told.exit_code) == (1, 2 * is_first, 1)
    early = Played(wrong=("model1",), ends_when=lambda one: one.done.count(("time", "1")) == 2)
    check = checked(early, acting=ACTING, count=3, workers=1)
    with pytest.raises(KeyboardInterrupt):
        check.run()
    assert answer(check)[1].exit_code == (3 if is_first else 1), "base may fail, too"


def test_a_disturbed_measurement_counts_only_if_no_repeat_ends(checked):
    check = checked(Played(disturbed=("model1",)), acting=ACTING, count=3)
    check.run()
    assert answer(check)[0].counts == {"unchanged": 3}
    ended = Played(disturbed=("model1",), ends_when=lambda one: one.ended == 4)
    check = checked(ended, acting=ACTING, count=3)
    with pytest.raises(KeyboardInterrupt):
        check.run()
    assert "compiled_kernel_ms" in check.rows[CELLS[1].cell_id].base.values, "better than none"


def test_a_disturbed_measurement_of_a_later_round_does_not_count_without_its_repeat(checked):
    def in_second_round(one):
        if one.ended == 2:
            one.disturbed.add("model0")
        return one.ended == 4

    check = checked(Played(slower={"model0": 1.03}, ends_when=in_second_round), acting=ACTING, count=1)
    with pytest.raises(KeyboardInterrupt):
        check.run()
    row = check.rows[CELLS[0].cell_id]
    assert row.ratio("compiled_kernel_ms") == pytest.approx(1.03, abs=0.01)


def test_an_interruption_keeps_what_one_side_has_measured(checked):
    check = checked(Played(other=("model3",), ends_when=lambda one: one.done.count(("time", "3")) == 2), count=4)
    with pytest.raises(KeyboardInterrupt):
        check.run()
    report, told = answer(check)
    timed = {one.cell.model: "compiled_ms" in one.new.values for one in report.comparison.cells}
    assert timed == {item.model: item.model == "model3" for item in CELLS[:4]}
    assert (told.open, told.exit_code) == (1, 3)
    assert told.reason == "1 cell to time and none of them decided: raise --minutes"


def test_what_the_census_decides_is_not_measured(checked, capsys):
    played = Played(slower={"model3": 1.1}, other=("model3",))
    census = PlayedCensus(other=("model3",), unknown=("model1", "model2"))
    check = checked(played, census=census, count=5, compares_compiling=False)
    check.run()
    order = [(what, model) for _, what, model in played.turns]
    assert order.index(("time", "3")) < order.index(("compile", "1")) < order.index(("compile", "2"))
    assert played.kinds() == {("time", "3"), ("compile", "1"), ("compile", "2")}
    assert played.neighbours == [check.census], "it stands still while another is timed"
    report, told = answer(check)
    assert (told.exit_code, told.cells, told.census, told.same_code, told.timed, told.open) == (1, 5, 2, 4, 1, 0)
    assert report.counts == {"regressed": 1, "unchanged": 4}
    errors = capsys.readouterr().err
    assert "unchanged: huggingface/model0 inference bfloat16 cuda bs8 default, same code" in errors
    assert "census: 2 unchanged, 1 with other code, 2 not known" in errors


def test_compile_times_of_some_cells_of_equal_code_are_compared_at_the_end(checked):
    played = Played(compiling={"model0": 2.0})
    played.tuned.update(item.model for item in CELLS)
    check = checked(played, census=PlayedCensus(), count=6)
    check.run()
    assert played.kinds() == {("compile", model) for model in "0123"}
    report, told = answer(check)
    assert (told.exit_code, told.census, told.timed) == (1, 6, 0)
    assert report.counts == {"regressed": 1, "unchanged": 5}
    assert [row.finding.metric for row in report.rows] == ["compile_cold_s"]
    check.compiled[CELLS[0].cell_id] = 3
    few = answer(check)[1]
    said = "compile time changed in 1 cell, not yet confirmed: raise --minutes"
    assert (few.exit_code, few.reason) == (3, said), "few rounds fail nothing"


@pytest.mark.parametrize(
    ("ends_when", "census", "counts"),
    [
        (lambda _: False, {"other": ("model1",), "ends_after": 3}, {"unchanged": 2, "inconclusive": 1, "missing": 5}),
        # A compilation that one side lacks takes no answer back.
        (lambda one: one.ended == 1, {}, {"unchanged": 8}),
    ],
)
def test_what_the_census_decided_is_reported_however_it_ends(checked, ends_when, census, counts):
    check = checked(Played(ends_when=ends_when), census=PlayedCensus(**census))
    with pytest.raises(KeyboardInterrupt):
        check.run()
    assert answer(check)[0].counts == counts


def test_cells_that_began_go_on_before_others_begin(checked):
    played = Played(slower={"model0": 1.2, "model1": 1.2})
    check = checked(played, acting=ACTING, workers=2, count=4)
    check.run()
    assert sorted(played.turns[:4]) == [(side, "time", model) for side in ("base", "new") for model in "01"]
    for model in "01":
        assert played.of(model, "time") == ["base", "new", "new", "base"]
    report, told = answer(check)
    assert (told.exit_code, told.same_code, told.timed) == (1, 0, 4), "files act at run time: equal code is timed"
    assert ACTING[0] in " ".join(told.lines())
    assert report.counts == {"regressed": 2, "unchanged": 2}


@pytest.mark.parametrize("config", [Config(), Config(template="max_autotune")])
def test_both_sides_begin_at_once_but_for_one_that_tunes_long(checked, monkeypatch, config):
    played = Played(slower={"model0": 1.2})
    monkeypatch.setattr(played, "stage_of", lambda _: Stage.COMPILE)
    check = checked(played, acting=ACTING, workers=4, count=1)
    first, other = replace(CELLS[0], config=config), replace(CELLS[0], config=Config(template="cudagraphs"))
    check.cells = [first, other, CELLS[1]]
    check.run()
    began = [(job.server, job.cell) for job in played.jobs]
    assert began[:2] == [("base", first), ("new", first) if config == Config() else ("base", CELLS[1])]
    for side in ("base", "new"):
        assert began.index((side, first)) < began.index((side, other)), "it takes the choices of the first config"


def test_what_other_cells_tell_of_the_noise_opens_no_decided_cell_while_its_outcome_stays(checked):
    check = checked(Played(slower={"model0": 1.03}, ends_when=lambda one: one.ended == 2), acting=ACTING, count=1)
    with pytest.raises(KeyboardInterrupt):
        check.run()
    ((cell_id, row),) = check.rows.items()
    words = []
    for told in ({}, {cell_id: row.outcome}, {cell_id: Verdict.UNCHANGED}):
        check._told = told
        words.append(check.needs()[cell_id] in SETTLED)
    assert words == [False, True, False]


def test_a_cell_that_is_open_after_two_rounds_lets_the_others_have_the_device_first(checked):
    played = Played(slower={"model0": 1.022})
    checked(played, acting=ACTING, count=2).run()
    ranks = [job.rank for job in played.jobs if job.cell.model == "model0"]
    assert ranks[:6] == [0, 0, 0, 0, 2, 2]
    assert {job.rank for job in played.jobs if job.cell.model == "model1"} == {1}


@pytest.mark.parametrize(("pace", "order"), [(1.3, "2031"), (3.0, "2301")])
def test_what_would_soon_be_too_late_goes_first_and_what_is_too_late_last(checked, monkeypatch, pace, order):
    takes_s = defaultdict(lambda: 1.0, {"model1": 300.0, "model2": 85.0, "model3": 40.0})
    costs = SimpleNamespace(estimate=lambda cell: SimpleNamespace(worker_s=takes_s[cell.model]))
    monkeypatch.setattr(rounds.CostModel, "of_history", lambda _: costs)
    monkeypatch.setattr(rounds, "_SOON_S", 30.0)  # a quarter of the budget
    played = Played(slower={"model0": 1.022})  # hardly more than what matters, so that four rounds must show it
    measured = played._measured
    monkeypatch.setattr(
        played, "_measured", lambda cell, *rest: replace(measured(cell, *rest), wall_s=pace * takes_s[cell.model])
    )
    checked(played, acting=ACTING, workers=1, seconds=120, count=4).run()
    assert len(played.of("0", "time")) > 4, "two rounds do not decide it"
    models = [model for _, _, model in played.turns]
    assert "".join(dict.fromkeys(models)) == order and models.index("1") > 8


def test_what_takes_longer_than_the_budget_and_half_a_minute_is_ended(checked, monkeypatch):
    played, told = Played(), []
    check = checked(played, acting=ACTING, workers=2, seconds=75, count=4)
    turn = played.turn

    def slow():
        check.deadline -= 10
        if check.left_s > 0:  # nothing ends after that
            yield from turn()

    monkeypatch.setattr(played, "turn", slow)
    monkeypatch.setattr(played, "tell_under_way", told.append)
    check.run()
    assert told == ["the time is over; ended, though under way:"]
    assert len(played.under_way) == 2
    assert answer(check)[1].exit_code == 3


def test_an_option_is_judged_on_the_cells_of_base(checked, monkeypatch, capsys):
    monkeypatch.setattr(check_sides, "check_config", lambda *_: None)
    played = Played(slower={"model3": 1.2}, other=("model3",))
    check = checked(played, count=4)
    check.other, check.compares_compiling = OtherOption.parse("+combo_kernels=true"), False
    check.census = PlayedCensus(other=("model3",), on_new=check.on_new)
    check.run()
    assert played.kinds() == {("time", "3")}
    report, told = answer(check)
    assert (told.exit_code, told.census, told.timed, told.open) == (1, 3, 1, 0)
    assert report.counts == {"regressed": 1, "unchanged": 3}
    (row,) = report.rows
    assert "combo_kernels=true" in row.cell
    assert row.repro.startswith("inductor-watch check base --against +combo_kernels=true --suite huggingface")
    assert "--config default " in row.repro
    assert told.lines()[0] == "new is base with +combo_kernels=true"
    assert "unchanged: huggingface/model0 inference bfloat16 cuda bs8 default, same code" in capsys.readouterr().err


def test_without_a_census_everything_is_compiled_first(checked, capsys):
    played = Played(ends_when=lambda one: len(one.turns) >= 16)
    check = checked(played, census=PlayedCensus(ends_after=0, fails="no C compiler"))
    with pytest.raises(KeyboardInterrupt):
        check.run()
    assert {turn for _, turn, _ in played.turns[:16]} == {"compile"}
    assert "no census: no C compiler" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["model0", "model1"])
def test_the_first_cells_begin_before_the_census_has_answered(checked, monkeypatch, capsys, other):
    """On many cores, where the census takes its time; what they measure does not count for equal code."""
    monkeypatch.setattr(rounds, "has_cores_for_all", lambda: True)
    begun = []
    played = Played(slower={other: 1.2}, other=(other,))
    monkeypatch.setattr(played, "turn", lambda: iter(()))  # nothing ends before
    census = PlayedCensus(other=(other,), pauses=3)
    check = checked(played, census=census, count=3, compares_compiling=False)
    monkeypatch.setattr(played, "stage_of", lambda _: Stage.TIMING if check.answers else Stage.COMPILE)
    take = check._take_answer

    def took(found):
        begun.append(list(played.turns))
        assert set(census.most) == {rounds._LEAD} or len(begun) > 1, "what ends the census has the cores"
        take(found)
        monkeypatch.setattr(played, "turn", lambda: Played.turn(played))

    monkeypatch.setattr(check, "_take_answer", took)
    check.run()
    assert begun[0] == [(side, "time", model) for model in "01" for side in ("base", "new")]
    assert census.most[-1] is None
    equal = "1" if other == "model0" else "0"
    assert (len(played.of(equal, "time")), len(played.of(other[-1], "time"))) == (2, 4)
    assert f"new: huggingface/model{equal} inference bfloat16 cuda bs8 default  pass" not in capsys.readouterr().err
    assert answer(check)[0].counts == {"regressed": 1, "unchanged": 2}


@pytest.mark.parametrize("begin", [True, False])
def test_what_other_cells_need_is_imported_when_the_first_ones_have_begun(checked, monkeypatch, begin):
    """Or when the census has answered before that."""
    monkeypatch.setattr(rounds, "has_cores_for_all", lambda: True)
    played = Played(other=("model1",))
    check = checked(played, census=PlayedCensus(other=("model1",), pauses=5), count=4, compares_compiling=False)
    imported, turns = [], []

    def turn():
        turns.append(len(imported))
        yield from Played.turn(played) if check.answers else ()

    def import_for(testbed, cells):
        imported.append(
            (testbed.slot.variables["side"], "".join(cell.model[-1] for cell in cells), bool(check.answers))
        )

    monkeypatch.setattr(played, "turn", turn)
    monkeypatch.setattr(played, "stage_of", lambda _: Stage.LOAD_MODEL if begin and len(turns) > 1 else None)
    monkeypatch.setattr(Testbed, "import_for", import_for)
    check.run()
    first = [(side, "01", False) for side in ("base", "new")]
    assert turns[:2] == [2, 2]
    assert imported == [*first, *((side, "0123", not begin) for side in ("base", "new"))]


def test_the_census_ends_where_most_cells_have_other_code(checked, monkeypatch, capsys):
    monkeypatch.setattr(rounds, "_LEAD", 1)
    names = [item.model for item in CELLS]
    played, census = Played(slower={"model1": 1.2}, other=names), PlayedCensus(other=names[1:])
    check = checked(played, census=census, count=5, compares_compiling=False)
    check.run()
    assert (len(check.answers), census.is_over) == (3, False)
    assert played.kinds() == {("time", model) for model in "1234"}, "without compiling on its own before"
    assert answer(check)[0].counts == {"regressed": 1, "unchanged": 4}
    assert "most cells have other code" in capsys.readouterr().err

"""The search for the first bad build, over synthetic noisy ones: what it finds, how often it is wrong, and its log."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from analysis.history.bisection import RISK, Word, level_of, looks
from jobs.bisect.judges import CodeJudge, MetricJudge, Reading, StatusJudge
from jobs.bisect.search import Bisection, BisectionLog, EndError
from jobs.builds.build_options import BuildError

NAMES = [f"synthetic-{number:02d}" for number in range(12)]


class Memory(BisectionLog):
    """A log that is in no file."""

    def __init__(self):
        self._runs, self._decided, self.events = {}, [], []

    def write(self, event, **fields):
        self.events.append((event, fields))


class Noisy:
    """Synthetic builds: `slow` from the build `first` on, with normal noise of `sd` from run to run; some do not install."""

    def __init__(self, first, seed=0, sd=0.02, slow=1.1, missing=(), failing=()):
        self.first, self.sd, self.slow, self.missing, self.failing = first, sd, slow, missing, failing
        self.rng, self.calls = np.random.default_rng(seed), []

    def __call__(self, name, number):
        self.calls.append((name, number))
        if name in self.missing:
            raise BuildError(f"{name} does not install")
        if name in self.failing:
            return Reading("fail_to_compile", None, name, "")
        level = self.slow if NAMES.index(name) >= self.first else 1.0
        return Reading("pass", 10 * level * float(np.exp(self.sd * self.rng.standard_normal())), name, "")


class Host(Noisy):
    """The same with the eager latency of each run. `pace` names by how much the host slows eager and compiled of a build,
    `eager` by how much the eager program of a build is slower by itself, which its device time shows."""

    def __init__(self, first, *, pace=None, eager=None, **more):
        super().__init__(first, **more)
        self.pace, self.eager = pace or {}, eager or {}

    def __call__(self, name, number):
        plain = super().__call__(name, number)
        host, own = self.pace.get(name, 1.0), self.eager.get(name, 1.0)
        eager = 20 * host * own * float(np.exp(self.sd * self.rng.standard_normal()))
        kernels = 5 * own * float(np.exp(0.001 * self.rng.standard_normal()))
        return Reading("pass", plain.value * host, name, "", eager=eager, eager_kernel=kernels)


def searching(builds, log=None, judge=None, least=3, most=12, **more):
    judge = judge or MetricJudge("compiled_ms", level_of(len(NAMES), len(looks(least, most))))
    return Bisection(NAMES, builds, judge, log or Memory(), lambda line: None, least=least, most=most, **more)


def bisect(builds, log=None, judge=None, least=3, most=12):
    return searching(builds, log, judge, least, most).run()


@pytest.mark.parametrize("sd", [0.01, 0.03])
def test_a_wrong_build_is_named_no_more_often_than_the_risk_allows(sd):
    """150 synthetic bisections of a 10 % change; what is left open is no wrong answer, but must not be the rule."""
    answers = [(NAMES[1 + seed % 11], bisect(Noisy(1 + seed % 11, seed=seed, sd=sd))) for seed in range(150)]
    named = [(right, found.first_bad) for right, found in answers if found.word == "found"]
    assert sum(right != first_bad for right, first_bad in named) / 150 <= RISK
    steps = [found.step.figures for _, found in answers if found.word == "found"]
    assert sum(step["low"] < np.log(1.1) < step["high"] for step in steps) / len(steps) >= 1 - 2 * RISK
    assert 1 - len(named) / 150 <= (0.01 if sd == 0.01 else 0.5)


def test_ends_that_are_alike_are_inconclusive_and_end_the_search():
    """100 synthetic pairs of ends without any change."""
    searches = [(builds := Noisy(99, seed=seed, sd=0.03), bisect(builds)) for seed in range(100)]
    alike = [(builds, found) for builds, found in searches if found.ends.word is not Word.DIFFERENT]
    assert 1 - len(alike) / 100 <= RISK
    for builds, found in alike:
        assert found.word == "inconclusive"
        assert {name for name, _ in builds.calls} == {NAMES[0], NAMES[-1]}


@pytest.mark.parametrize("sd", [0.001, 0.02])
def test_a_build_on_a_host_that_slows_eager_as_well_is_not_called_bad(sd):
    """15 synthetic bisections each: the host slows a build, or the bad end, by 30 %, eager and compiled alike."""
    for seed in range(15):
        found = bisect(Host(8, seed=seed, sd=sd, pace={NAMES[5]: 1.3}))
        assert NAMES.index(found.first_bad) >= 8
        assert bisect(Host(99, seed=seed, sd=sd, pace={NAMES[-1]: 1.3})).ends.word is not Word.DIFFERENT


def test_a_build_whose_eager_program_changed_is_judged_as_measured():
    faster = dict.fromkeys(NAMES[4:], 0.7)
    found = bisect(Host(7, sd=0.005, eager=faster))
    assert (found.word, found.first_bad) == ("found", NAMES[7])
    assert found.ends.figures["judged"] == "compiled_ms as measured: the eager program changed"


@pytest.mark.parametrize(
    ("builds", "word", "last_good", "first_bad", "reason"),
    [
        (Noisy(7, sd=0.002, missing={NAMES[5], NAMES[6], NAMES[9]}), "range", 4, 7, "does not install"),
        (Noisy(7, sd=0.002, failing={NAMES[6]}), "range", 5, 7, "ends in fail_to_compile"),
        (Noisy(3, sd=0.002, missing={NAMES[6], NAMES[5]}), "found", 2, 3, ""),  # away from the change
    ],
)
def test_builds_that_cannot_be_measured_are_passed_over(builds, word, last_good, first_bad, reason):
    found = bisect(builds)
    assert (found.word, found.last_good, found.first_bad) == (word, NAMES[last_good], NAMES[first_bad])
    assert list(found.between) == NAMES[last_good + 1 : first_bad]
    assert all(reason in why for why in found.between.values())


def test_an_end_that_cannot_be_judged_ends_the_search():
    with pytest.raises(EndError, match="use --metric status"):
        bisect(Noisy(7, failing={NAMES[11]}))
    with pytest.raises(BuildError, match="does not install"):
        bisect(Noisy(7, missing={NAMES[0]}))
    with pytest.raises(BuildError, match="needs a build"):
        find_code([*"aaaaaaaaaaa", None])
    with pytest.raises(EndError, match="its cell is crashed there"):
        bisect(lambda name, number: Reading("crashed", None, name, ""), judge=CodeJudge(), least=1, most=1)


def test_a_cell_that_broke_is_found_by_its_status():
    found = bisect(Noisy(0, failing=set(NAMES[8:])), judge=StatusJudge(), most=3)
    assert (found.word, found.last_good, found.first_bad) == ("found", NAMES[7], NAMES[8])
    assert found.step.text == "3 x pass against 3 x fail_to_compile"


def find_code(codes):
    """The answer of a search by code, and the commits that were asked for; None: its code is not known."""
    asked = []

    def measure(name, number):
        asked.append((name, number))
        if codes[NAMES.index(name)] is None:
            raise BuildError(f"{name} needs a build")
        return Reading("not_checked", None, name, "", code=codes[NAMES.index(name)])

    return bisect(measure, judge=CodeJudge(), least=1, most=1), asked


@pytest.mark.parametrize(
    ("codes", "word", "first_bad"),
    [
        ([*"aaaacccccbbb"], "found", 4),  # other code than both ends
        ([*"aaaaa", None, None, *"bbbbb"], "range", 7),
        (["a", None, *"aaaaaaaaab"], "found", 11),  # away from the change
    ],
)
def test_the_first_commit_with_other_code_is_found_in_one_run_of_each(codes, word, first_bad):
    found, asked = find_code(codes)
    assert (found.word, found.first_bad) == (word, NAMES[first_bad])
    assert found.last_good == NAMES[max(at for at in range(first_bad) if codes[at] == "a")]
    assert found.step.text == f"code a against code {codes[first_bad]}"
    assert len(asked) == len(dict(asked)) <= 2 + 5


def test_a_build_that_behaves_as_a_decided_one_is_not_measured():
    builds, log, asked = Noisy(7, sd=0.002), Memory(), []

    def code(name):
        return "new" if NAMES.index(name) >= 7 else "old"

    def same_as(name, codes):
        asked.append(set(codes.items()))
        return next((other for other in codes if codes[other] == code(name)), None)

    search = searching(lambda name, number: replace(builds(name, number), code=code(name)), log, same_as=same_as)
    found = search.run()
    assert (found.word, found.last_good, found.first_bad) == ("found", NAMES[6], NAMES[7])
    assert {name for name, _ in builds.calls} == {NAMES[0], NAMES[-1]}
    assert asked[-1] == {(NAMES[0], "old"), (NAMES[-1], "new")}
    assert [search.measured(name) for name in NAMES[5:8]] == [NAMES[0], NAMES[0], NAMES[-1]]
    assert found.step.figures == found.ends.figures
    decided = [what for event, what in log.events if event == "decided" and "same_as" in what]
    assert {"build": NAMES[7], "word": "bad", "same_as": NAMES[-1]} in decided


def test_a_bisection_that_was_stopped_goes_on_with_what_it_has(tmp_path):
    path, asked = tmp_path / "out" / "bisect.jsonl", {"builds": NAMES}
    whole = Noisy(7, seed=3)
    values = {}

    def measure(name, number):
        return values.setdefault((name, number), whole(name, number))

    def events():
        return [json.loads(line)["event"] for line in path.read_text().splitlines()]

    first = bisect(measure, BisectionLog(path, asked))
    lines, told = path.read_text().splitlines(), events()
    assert [told[0], told[-1]] == ["asked", "answer"]
    assert {"run", "decided"} <= set(told)

    for cut in (1, 4, len(lines) // 2, len(lines) - 1):
        path.write_text("\n".join(lines[:cut]) + '\n{"event": "run", "bui')
        again = []

        def recall(name, number, again=again):
            again.append((name, number))
            return values[name, number]

        assert bisect(recall, BisectionLog(path, asked)).to_json() == first.to_json()
        assert len(again) == len(values) - told[:cut].count("run")
        assert events() == told


def test_a_log_of_something_else_is_refused(tmp_path):
    path = tmp_path / "bisect.jsonl"
    BisectionLog(path, {"builds": ["misspelled"]})
    log = BisectionLog(path, {"builds": NAMES})  # nothing was measured: the command was corrected
    assert [json.loads(line)["asked"] for line in path.read_text().splitlines()] == [{"builds": NAMES}]
    log.add_run(NAMES[0], Reading("pass", 1.0, NAMES[0], ""))
    with pytest.raises(BuildError, match="another bisection"):
        BisectionLog(path, {"builds": NAMES[1:]})
    path.write_text('{"event": "run"}\n')
    with pytest.raises(BuildError, match="no log of a bisection"):
        BisectionLog(path, {})

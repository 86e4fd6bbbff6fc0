"""Code is found again where nothing differs that it was generated from."""

from pathlib import Path

import pytest

from collector.bundle import CENSUS
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Measurement, Status
from jobs.builds.overlay import Wheel
from jobs.census.census_pool import CensusCache, CensusPlace
from tests.factories import cell

NAMES = ("torch/compiler.py", "torch/unused.py", "torch/kernel.jinja")


def write(folder, changes):
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changes.get(path.stem, "x = 1  # one\n"))


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    write(tmp_path / "wheel", {})
    found = Wheel(tmp_path / "wheel", "2.13.0", "a" * 40)
    monkeypatch.setattr(Wheel, "installed", classmethod(lambda cls: found))
    return found


@pytest.fixture
def keep(wheel, tmp_path):
    """Keeps an outcome of the wheel, and returns what another place finds."""
    place = CensusPlace("H100", cache=tmp_path / "cache")
    kept = outcome()
    CensusCache(place, Settings()).keep(kept, {}, [NAMES[0], NAMES[2]])

    def find(answers=None, one=cell(), settings=Settings(), **changes: str):  # noqa: B008 - both are frozen
        overlay = ""
        if changes:
            overlay = str(tmp_path / "overlay")
            write(tmp_path / "overlay", changes)
        there = CensusPlace("H100", overlay, "1 files of b" if overlay else "", cache=tmp_path / "cache")
        return next(iter(CensusCache(there, settings).find([one], {one.cell_id: answers or {}})), None)

    return find


def outcome(one=cell()):  # noqa: B008 - it is frozen
    measurement = Measurement(one, Status.NOT_CHECKED, "", 1.0, details={CENSUS: {"known": True}}, code_id="c0de")
    return Outcome(measurement, environment={"torch": "2.13.0"})


def test_the_same_files_are_the_same_code(keep, tmp_path):
    found = keep()
    assert found.measurement.code_id == "c0de"
    assert found.measurement.details[CENSUS]["cached"]
    assert keep(settings=Settings(rounds=5, shared_tuning="/elsewhere")), "how it would be measured changes no code"
    for path in (tmp_path / "cache").rglob("*.gz"):
        path.write_bytes(b"damaged")
    assert keep() is None


@pytest.mark.parametrize("changes", [{"unused": "x = 2\n"}, {"compiler": "# two\n\nx = 1\n"}])
def test_an_unused_file_and_a_comment_change_nothing(keep, changes):
    found = keep(**changes)
    assert found.environment == {"torch": "2.13.0", "source": "1 files of b"}


def test_other_files_questions_settings_and_cells_are_not_found(keep):
    assert keep(compiler="x = 2\n") is None
    assert keep(kernel="x = 1\n") is None
    assert keep(answers={"a": (True, "night-1")}) is None
    assert keep(settings=Settings(optimizer="sgd")) is None
    assert keep(one=cell("gpt2")) is None


def test_a_users_model_is_generated_again_once_it_has_changed(wheel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place, one = CensusPlace("H100", cache=tmp_path / "cache"), cell("mine:net", suite="user")
    found = []
    for text in ("x = 1\n", "x = 1\n", "x = 2\n"):
        Path("mine.py").write_text(text)
        cache = CensusCache(place, Settings())
        found.append(len(cache.find([one], {})))
        cache.keep(outcome(one), {}, NAMES)
    assert found == [0, 1, 0]

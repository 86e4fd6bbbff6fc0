"""The programs of a check's sides that later checks find: whose they are, how long they stay, and what passed."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from collector.settings import BackendFlags, Settings
from collector.usage_errors import ConfigError
from jobs.checking import kept_programs
from jobs.checking.check_sides import CheckedSide
from jobs.checking.kept_programs import KeptPrograms, folder_for
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions, RunNames


def test_a_side_has_a_folder_for_all_that_its_programs_depend_on(tmp_path, monkeypatch):
    def folder(word="base", flags=None, overlay="", tuning="", **facts):
        testbed = Testbed(
            DeviceSlot([[0]]), {"torch": "2.11", "gpu": "H200", **facts}, ExecutionOptions(overlay=overlay)
        )
        settings = Settings(flags=flags or BackendFlags(), shared_tuning=tuning)
        return folder_for(CheckedSide(word, "main", RunNames(), [testbed]), settings, tmp_path)

    others = [folder("new"), folder(overlay="/of/another"), folder(torch="2.12"), folder(gpu="H100")]
    others += [folder(flags=replace(BackendFlags(), tf32_matmul=False)), folder(tuning="/runs/tuning")]
    with monkeypatch.context() as patch:
        patch.setattr(kept_programs, "collector_digest", lambda: "another version")
        others.append(folder())
    assert folder() == folder() and len({folder(), *others}) == 8
    assert folder().parent == tmp_path / "programs"


def test_the_newest_sides_are_kept_and_one_in_use(tmp_path):
    folders = [tmp_path / str(number) for number in range(7)]
    with KeptPrograms(folders[0]) as used:
        used.note_passed("cell", "code")
        for number, folder in enumerate(folders[1:], 1):
            with KeptPrograms(folder):
                os.utime(folders[0], (1, 1))
                os.utime(folder, (number, number))
        assert [folder.exists() for folder in folders] == [True, False, False, *[True] * 4]
    assert [folder.exists() for folder in folders[:3]] == [False, False, False], "once it is in use no more"
    with KeptPrograms(folders[6]) as found:
        assert (found.passed("cell"), used.passed("cell")) == ("", "")
        found.note_passed("cell", "code")
    assert KeptPrograms(folders[6]).passed("cell") == "code"


def test_programs_of_others_are_not_run(tmp_path):
    (tmp_path / "side").mkdir(mode=0o777)
    (tmp_path / "side").chmod(0o777)
    with pytest.raises(ConfigError, match="another --cache"), KeptPrograms(tmp_path / "side"):
        pass

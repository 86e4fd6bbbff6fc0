"""Which version of a user's own model was measured, and when two versions are different models."""

import pytest

from collector.own_models import OwnModel, described, identity_in, names_another_model, version_of
from tests.jobs.repositories import run_git

MODEL = OwnModel("tiny.short", "own_pkg.models:tiny", {"seq": 8}, tolerance=0.1)


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "own_pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "models.py").write_text("def tiny(seq): ...\n")
    return folder


def test_a_version_is_the_content_of_the_package(package):
    before = version_of(MODEL)
    assert before.startswith("content ")
    (package / "notes.txt").write_text("no code")
    assert version_of(MODEL) == before
    (package / "models.py").write_text("def tiny(seq): return 1\n")
    assert version_of(MODEL) != before
    assert version_of(OwnModel("gone", "nowhere_at_all:x")) == "unknown"


def test_or_the_commit_of_its_repository_with_what_is_not_committed(package, tmp_path):
    model = OwnModel("tiny", "own_pkg.models:tiny", source=".")
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "add", "own_pkg/__init__.py")
    run_git(tmp_path, "commit", "-qm", "one")
    untracked = version_of(model)
    assert " with changes " in untracked  # models.py is in no commit yet
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-qm", "two")
    clean = version_of(model)
    assert (clean.startswith("commit "), "changes" in clean) == (True, False)
    (tmp_path / "results.db").write_text("beside it")
    assert version_of(model) == clean
    (package / "models.py").write_text("def tiny(seq): return 1\n")
    assert version_of(model).startswith(f"{clean} with changes ")


def test_a_model_is_another_one_by_its_code_or_arguments_alone(package):
    environment = described("user", "tiny.short", [MODEL])
    same = identity_in(environment, "tiny.short")
    elsewhere = OwnModel("tiny.short", "own_pkg.models:tiny", {"seq": 8}, folder=".", tolerance=0.2)
    assert identity_in(described("user", "tiny.short", [elsewhere]), "tiny.short") == same
    longer = OwnModel("tiny.short", "own_pkg.models:tiny", {"seq": 9})
    assert identity_in(described("user", "tiny.short", [longer]), "tiny.short") != same
    assert (described("timm", "tiny.short"), identity_in({}, "tiny.short")) == ({}, None)
    assert names_another_model("model.tiny.short.version", ("content 1",), ("content 2",))
    assert names_another_model("model.tiny.arguments.seq", (), ("9",))
    assert not names_another_model("model.tiny.version", (), ("content 2",))  # measured before versions were known
    assert not names_another_model("model.tiny.tolerance", ("0.1",), ("0.2",))

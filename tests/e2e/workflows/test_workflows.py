"""The workflows: what is in the files, and every shell step of every job run as GitHub's runner would run it."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from db.engine import open_store
from db.ingest import ingest_bundle
from db.nights import list_nights
from jobs.plan.planning import planned_night
from jobs.requested_options import Selection
from tests.e2e.workflows.played import play
from tests.e2e.workflows.runner import ROOT, Host, Service, clone, condition, read
from tests.jobs.github_server import TOKEN, github_server

WORKFLOWS = ROOT / ".github" / "workflows"
NIGHTLY, ADHOC, CI, RELEASE = (WORKFLOWS / f"{name}.yml" for name in ("nightly", "adhoc", "ci", "release"))
ACTION, DOCUMENT = ROOT / "action.yml", ROOT / "docs" / "ci.md"
MODELS = ("ViTTinyForImageClassification", "T5Small")
CONFIGS = ("triton", "freezing")
PLAN_OPTIONS = " ".join(["--device cpu", *(f"--model {m}" for m in MODELS), *(f"--config {c}" for c in CONFIGS)])
VARIABLES = {"INDUCTOR_WATCH_PLAN_OPTIONS": PLAN_OPTIONS, "INDUCTOR_WATCH_SHARDS": "2"}
BIN = Path(sys.executable).parent


# --- what the files say


def steps_of(path):
    data = read(path)
    jobs = data["jobs"].values() if "jobs" in data else [data["runs"]]
    return [step for job in jobs for step in job["steps"]]


#: What a job may write; all others write nothing.
WRITES = {
    (NIGHTLY, "merge"): {"issues"},
    (NIGHTLY, "pages"): {"pages", "id-token"},
    (ADHOC, "judge"): {"pull-requests"},
    (RELEASE, "release"): {"contents"},
}


@pytest.mark.parametrize("path", [NIGHTLY, ADHOC, CI, RELEASE], ids=lambda path: path.stem)
def test_a_job_may_write_exactly_what_it_needs(path):
    assert read(path)["permissions"] == {}
    for name, job in read(path)["jobs"].items():
        writes = {right for right, level in job["permissions"].items() if level != "read"}
        assert writes == WRITES.get((path, name), set()), name


@pytest.mark.parametrize("path", [NIGHTLY, ACTION], ids=lambda path: path.stem)
@pytest.mark.parametrize("name", ["Keep the store", "Offer the night"])
def test_a_stored_night_is_kept_whatever_failed_unless_it_is_cancelled(path, name):
    (step,) = (step for step in steps_of(path) if step["name"] == name)
    for ingested, failed, cancelled in itertools.product(("success", "failure"), (False, True), (False, True)):
        contexts = {"steps": {"ingest": {"outcome": ingested}}, "cancelled": lambda value=cancelled: value}
        assert condition(step["if"], contexts, failed) == (ingested == "success" and not cancelled)


@pytest.mark.parametrize("path", [NIGHTLY, ADHOC, ACTION], ids=lambda path: path.stem)
def test_only_steps_that_use_the_database_know_its_address(path):
    data = read(path)
    assert "INDUCTOR_WATCH_DB" not in json.dumps(
        [data.get("env"), *(job.get("env") for job in data.get("jobs", {}).values())]
    )
    uses = re.compile(r"jobs\.cli (ingest|report|publish|regressions|gate|runs)\b")
    told = {step["name"] for step in steps_of(path) if "INDUCTOR_WATCH_DB" in step.get("env", {})}
    assert told == {step["name"] for step in steps_of(path) if uses.search(step.get("run", ""))}
    assert {"Report", "Gate"} <= told
    secret = [step["name"] for step in steps_of(path) if "secrets." in json.dumps(step)]
    assert set(secret) <= told
    installing = {step["name"] for step in steps_of(path) if re.search(r"bootstrap|pip install", step.get("run", ""))}
    assert installing
    assert not installing & told


PINNED = re.compile(r"(actions/[\w-]+)(?:/\w+)?@(\w{40})")
OURS = "".join(path.read_text() for path in (NIGHTLY, ADHOC, CI, RELEASE, ACTION))
#: The workflows in the docs, to be copied.
COPIED = [
    (path, text)
    for path in (DOCUMENT, DOCUMENT.with_name("check.md"))
    for text in re.findall(r"```yaml\n(name: .*?)```", path.read_text(), re.DOTALL)
]


@pytest.mark.parametrize("text", [text for _, text in COPIED], ids=[path.name for path, _ in COPIED])
def test_a_workflow_in_the_docs_is_valid_safe_and_pinned_as_ours(text, tmp_path):
    place = tmp_path / ".github" / "workflows" / "copied.yml"
    place.parent.mkdir(parents=True)
    ours = "uses: OWNER/inductor-watch@COMMIT" in text
    place.write_text(text.replace("COMMIT", "0" * 40))
    assert set(PINNED.findall(text)) <= set(PINNED.findall(OURS))
    for words in (
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
        ["zizmor", "--offline", "--no-progress", *(() if ours else ("--persona", "pedantic"))],
    ):
        found = subprocess.run([BIN / words[0], *words[1:], place], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout
    if ours:
        assert set(steps_of(place)[0]["with"]) <= set(read(ACTION)["inputs"])
    if "pull_request:" in text:  # what runs the pull request's code can write nothing and knows no secret
        assert not re.search("secrets|: write", text)


def test_the_document_names_every_variable_and_every_pin():
    text = DOCUMENT.read_text()
    for name in set(re.findall(r"(?:vars|secrets)\.(\w+)", OURS)):
        assert f"`{name}`" in text, name
    for action, sha, version in set(re.findall(r"(actions/[\w-]+)(?:/\w+)?@(\w{40}) # (v[\d.]+)", OURS)):
        assert f"| `{action}` | {version} | `{sha}` |" in text


# --- nights


@pytest.fixture
def github():
    with github_server() as server:
        yield server


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """The store after twelve quiet synthetic nights."""
    folder = tmp_path_factory.mktemp("history")
    cells = planned_night("cpu", Selection(models=MODELS), CONFIGS).cells
    assert len(cells) == 4
    store = open_store(folder / "inductor-watch.db", write=True)
    for day in range(12):
        ingest_bundle(store, play(folder / "bundles", cells, day, night=f"night-{day:02}"))
    store.dispose()
    return folder


@pytest.fixture
def service(tmp_path, github):
    environ = {"PLAYED": "1", "PLAYED_DAY": "12", "GITHUB_API_URL": github.url}
    return Service(tmp_path / "service", dict(VARIABLES), environ)


@pytest.fixture
def seasoned(service, history):
    """A service whose cache holds the quiet nights."""
    shutil.copytree(history, service.cache("inductor-watch-store-0-1"))
    return service


@pytest.fixture(scope="module")
def planned(history, tmp_path_factory):
    """The plan of a night after the quiet ones: its job, and the artefact. A plan takes seconds, most of them torch's."""
    service = Service(tmp_path_factory.mktemp("planned"), VARIABLES)
    shutil.copytree(history, service.cache("inductor-watch-store-0-1"))
    night = read(NIGHTLY)
    jobs = service.play({**night, "jobs": {"plan": night["jobs"]["plan"]}}, 100)
    return jobs, service.artifact(100, "plan")


@pytest.fixture
def night(seasoned, planned):
    """Plays the nightly workflow, whose plan is made."""
    jobs, artifact = planned
    shutil.copytree(artifact, seasoned.artifact(100, "plan"))
    return lambda: seasoned.play(read(NIGHTLY), 100, kept=jobs)


def stored_nights(service, attempt=1):
    place = service.cache(f"inductor-watch-store-100-{attempt}")
    return list_nights(open_store(place / "inductor-watch.db", write=False))


def test_the_first_night_in_two_shards_has_no_night_to_compare_with(service):
    jobs = service.play(read(NIGHTLY), 100)
    assert {key: job.result for key, job in jobs.items()} == dict.fromkeys(
        ("plan/0", "measure/0", "measure/1", "merge/0"), "success"
    ) | {"pages/0": "skipped"}, jobs
    merge = jobs["merge/0"]
    assert "night actions-100-1: 4 cells in 2 shards" in jobs["plan/0"].summary
    assert "all of them taken on" in merge.printed["Ingest"]
    assert merge.outcomes["Gate"] == merge.outcomes["Regressions"] == "skipped"
    assert "The first night" in merge.summary
    (stored,) = stored_nights(service)
    assert (stored.night, len(stored.runs), stored.missing) == ("actions-100-1", 2, 0)
    assert {found.ci_url for found in stored.runs} == {"https://github.example/o/r/actions/runs/100/attempts/1"}


def test_a_slower_night_is_reported_filed_and_kept_and_fails(seasoned, night, github):
    seasoned.environ["PLAYED_SLOWER"] = f"{MODELS[1]}=1.25"
    seasoned.variables["INDUCTOR_WATCH_SITE_URL"] = "https://o.example/r"
    odd = seasoned.artifact(100, "bundles-99-1") / "odd.jsonl"
    odd.parent.mkdir(parents=True)
    odd.touch()  # a host whose disk was full: the night is judged without it
    jobs = night()
    merge = jobs["merge/0"]
    assert [job.result for job in jobs.values()] == ["success", "success", "success", "failure", "success"], jobs
    site = seasoned.folder / "pages"
    assert "https://o.example/r/compare/?base=night-11" in (site / "feed.xml").read_text()
    assert MODELS[1] in (site / "index.html").read_text()
    assert "1 of 3 bundles could not be stored" in merge.printed["Ingest"]
    assert merge.outcomes["Gate"] == "failure", merge
    assert f"regressed: huggingface/{MODELS[1]} inference float32 cpu" in merge.printed["Gate"]
    assert MODELS[1] in merge.summary and "regressed" in merge.summary
    assert [MODELS[1] in issue["title"] for issue in github.issues] == [True], merge
    assert github.tokens == {f"Bearer {TOKEN}"}
    assert [stored.night for stored in stored_nights(seasoned)][:2] == ["actions-100-1", "night-11"]
    assert MODELS[1] in (seasoned.artifact(100, "night-1") / "report.md").read_text()
    # What cells take was learned from the nights before: 21.5 s each, two of them a shard.
    assert len(list((seasoned.artifact(100, "plan") / "history").iterdir())) == 12
    assert "2 cells, 1 models, 0.7 min of one worker" in jobs["plan/0"].summary


@pytest.mark.slow
def test_a_shard_that_never_arrives_is_missing_until_it_does(seasoned, night):
    seasoned.environ["PLAYED_LOST"] = "shard-02.json"
    jobs = night()
    assert [job.result for job in jobs.values()] == ["success", "success", "failure", "failure", "skipped"]
    assert "2 cells never arrived and count as missing" in jobs["merge/0"].printed["Ingest"], jobs
    assert "gate: 2 missing" in jobs["merge/0"].printed["Gate"]
    stored = stored_nights(seasoned)[0]
    assert (stored.night, len(stored.runs), stored.missing) == ("actions-100-1", 2, 2)

    del seasoned.environ["PLAYED_LOST"]
    kept = {key: job for key, job in jobs.items() if job.result == "success"}
    merge = seasoned.play(read(NIGHTLY), 100, attempt=2, kept=kept)["merge/0"]
    assert "all of them taken on" in merge.printed["Ingest"], merge
    assert merge.outcomes["Gate"] == "success"
    stored = stored_nights(seasoned, attempt=2)[0]
    assert (stored.night, len(stored.runs), stored.missing) == ("actions-100-1", 2, 0)
    bundles = {path.name for path in (seasoned.cache("inductor-watch-store-100-2") / "bundles").iterdir()}
    assert len(bundles) == 14
    assert not any("absent" in name for name in bundles)


def test_a_branch_is_compared_with_its_merge_base_by_the_nights_noise(seasoned, github):
    seasoned.environ["PLAYED_SLOWER"] = f"{MODELS[0]}=1.25"
    base, head = f"{11:040x}", "e" * 40
    inputs = {"model": MODELS[0], "torch": "torch==2", "base-torch": "torch==1", "branch": "mine", "rounds": 2}
    inputs |= {"base": base, "commit": head, "pull-request": "o/r#7"}
    measure, judge = seasoned.play(read(ADHOC), 103, inputs).values()
    assert measure.result == "success", measure
    assert measure.outputs == {"base": f"main@{base}", "new": f"mine@{head}"}
    assert measure.printed["Measure in turns"].count("bundle runs/") == 4
    assert judge.outcomes["Gate"] == "failure", judge
    assert f"regressed: huggingface/{MODELS[0]} inference" in judge.printed["Gate"]
    assert MODELS[0] in judge.summary
    assert [comment["body"].count(MODELS[0]) > 0 for comment in github.comments] == [True]


def test_inputs_are_data_and_no_commands(seasoned, tmp_path):
    trap = tmp_path / "trap"
    evil = f"x$(touch {trap})`touch {trap}`;touch {trap}"
    inputs = {"model": evil, "config": evil, "torch": evil, "base-torch": evil, "branch": evil, "pull-request": evil}
    jobs = seasoned.play(read(ADHOC), 104, inputs | {"base": "a" * 40, "commit": "b" * 40})
    assert [job.result for job in jobs.values()] == ["failure", "skipped"]
    assert not trap.exists()


def test_the_action_makes_a_night_of_ten_lines(seasoned, tmp_path):
    seasoned.environ["PLAYED_SLOWER"] = f"{MODELS[0]}=1.25"
    spec = read(ACTION)
    given = {name: item.get("default", "") for name, item in spec["inputs"].items()} | {"plan-options": PLAN_OPTIONS}
    given["site"] = "site"
    host = Host(seasoned, tmp_path / "host", seasoned.contexts(105, 1, given), {})
    clone(host.folder / "action")
    outputs = {key: item["value"] for key, item in spec["outputs"].items()}
    job = host.play(spec["runs"]["steps"], outputs)
    assert job.outputs == {"night": "actions-105-1", "base": "night-11"}, job
    assert [name for name, outcome in job.outcomes.items() if outcome == "failure"] == ["Gate"], job
    assert f"regressed: huggingface/{MODELS[0]}" in job.printed["Gate"]
    assert MODELS[0] in job.summary and MODELS[0] in (host.workspace / "site" / "index.html").read_text()

"""The workflows: what is in the files, and every shell step of every job run as GitHub's runner would run it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from db.engine import open_store
from db.ingest import ingest_bundle
from db.runs import list_nights
from jobs.plan.planning import planned_night
from jobs.pool.requested_options import Selection
from tests.e2e.workflows.played import play
from tests.e2e.workflows.runner import ROOT, Host, Job, Run, Service, clone, read
from tests.jobs.github.server import TOKEN, github_server

WORKFLOWS = ROOT / ".github" / "workflows"
NIGHTLY, ADHOC, CI = (WORKFLOWS / f"{name}.yml" for name in ("nightly", "adhoc", "ci"))
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


@pytest.mark.parametrize("path", [NIGHTLY, ADHOC, CI], ids=lambda path: path.stem)
def test_a_job_may_do_what_it_needs_and_ends_some_day(path):
    data = read(path)
    assert data["permissions"] == {}
    assert data["concurrency"]["group"]
    for name, job in data["jobs"].items():
        assert job["timeout-minutes"]
        writes = {right for right, what in job["permissions"].items() if what == "write"}
        assert writes <= {"merge": {"issues"}, "judge": {"pull-requests"}}.get(name, set())


@pytest.mark.parametrize("path", [NIGHTLY, ADHOC, ACTION], ids=lambda path: path.stem)
def test_only_steps_that_use_the_database_know_its_address(path):
    data = read(path)
    assert "INDUCTOR_WATCH_DB" not in json.dumps(
        [data.get("env"), *(job.get("env") for job in data.get("jobs", {}).values())]
    )
    uses = re.compile(r"jobs\.cli (ingest|report|regressions|gate|runs)\b")
    told = {step["name"] for step in steps_of(path) if "INDUCTOR_WATCH_DB" in step.get("env", {})}
    assert told == {step["name"] for step in steps_of(path) if uses.search(step.get("run", ""))}
    assert {"Report", "Gate"} <= told
    secret = [step["name"] for step in steps_of(path) if "secrets." in json.dumps(step)]
    assert set(secret) <= told
    installing = {step["name"] for step in steps_of(path) if re.search(r"bootstrap|pip install", step.get("run", ""))}
    assert installing
    assert not installing & told


def checked(tool, *words):
    return subprocess.run([BIN / tool, *map(str, words)], capture_output=True, text=True, check=False)


def test_the_checks_of_make_lint_find_what_they_are_there_for(tmp_path):
    lint = (ROOT / "Makefile").read_text()
    assert "zizmor --offline" in lint
    assert "--builtin-schema vendor.github-workflows" in lint
    text = NIGHTLY.read_text()
    bad = tmp_path / "nightly.yml"
    bad.write_text(text.replace("mkdir -p store/bundles plan/history", 'echo "${{ inputs.plan-options }}"'))
    assert bad.read_text() != text
    found = checked("zizmor", "--offline", "--no-progress", bad)
    assert found.returncode and "template-injection" in found.stdout
    bad.write_text(text.replace("timeout-minutes: 30", "timeout-minuts: 30"))
    found = checked("check-jsonschema", "--builtin-schema", "vendor.github-workflows", bad)
    assert found.returncode and "timeout-minuts" in found.stdout


def test_the_ten_lines_of_the_document_are_ten_and_a_workflow(tmp_path):
    section = DOCUMENT.read_text().partition("## A nightly in ten lines")[2]
    text = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1]
    assert len(text.splitlines()) == 10
    place = tmp_path / ".github" / "workflows" / "nightly.yml"
    place.parent.mkdir(parents=True)
    place.write_text(text.replace("COMMIT", "0" * 40))
    (step,) = steps_of(place)
    assert set(step["with"]) <= set(read(ACTION)["inputs"])
    for words in (["check-jsonschema", "--builtin-schema", "vendor.github-workflows"], ["zizmor", "--offline"]):
        found = checked(*words, place)
        assert found.returncode == 0, found.stdout


def test_the_workflows_that_check_a_branch_are_valid_safe_and_pinned_as_ours(tmp_path):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    texts = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "check.md").read_text(), re.DOTALL)
    for name, text in zip(("check", "comment"), texts, strict=True):
        (folder / f"{name}.yml").write_text(text)
        assert set(re.findall(r"uses: (.*)", text)) <= set(re.findall(r"uses: (.*)", ADHOC.read_text()))
    found = checked("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *folder.glob("*.yml"))
    assert found.returncode == 0, found.stdout
    found = checked("zizmor", "--offline", "--no-progress", "--persona", "pedantic", tmp_path / ".github")
    assert found.returncode == 0, found.stdout
    # What runs the pull request's code can write nothing and knows no secret.
    (measuring,) = read(folder / "check.yml")["jobs"].values()
    assert measuring["permissions"] == {"contents": "read"}
    assert "secrets" not in texts[0]


def test_the_workflow_that_takes_a_census_of_each_push_is_valid_and_safe(tmp_path):
    place = tmp_path / ".github" / "workflows" / "census.yml"
    place.parent.mkdir(parents=True)
    text = re.search(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]
    place.write_text(text)
    pin = r"actions/([\w-]+)(?:/\w+)?@(\w{40})"
    pinned = set(re.findall(pin, "".join(path.read_text() for path in (NIGHTLY, ADHOC, CI))))
    assert set(re.findall(pin, text)) <= pinned
    for words in (
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
        ["zizmor", "--offline", "--no-progress", "--persona", "pedantic"],
    ):
        found = checked(*words, place)
        assert found.returncode == 0, found.stdout
    jobs = read(place)["jobs"]
    assert "gpu" not in jobs["census"]["runs-on"]
    assert (jobs["check"]["needs"], jobs["check"]["if"]) == ("census", "needs.census.outputs.changed == 'true'")


def test_the_document_names_every_variable_and_every_pin():
    text = DOCUMENT.read_text()
    files = "".join(path.read_text() for path in (NIGHTLY, ADHOC, CI, ACTION))
    for name in set(re.findall(r"(?:vars|secrets)\.(\w+)", files)):
        assert f"`{name}`" in text, name
    for action, sha, version in set(re.findall(r"(actions/[\w-]+)(?:/\w+)?@(\w{40}) # (v[\d.]+)", files)):
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
    return Run(service, NIGHTLY, 100).run_job("plan", read(NIGHTLY), {}), service.artifact(100, "plan")


def after_the_plan(service, planned):
    """A run of the nightly workflow whose first job is done."""
    jobs, artifact = planned
    shutil.copytree(artifact, service.artifact(100, "plan"))
    return Run(service, NIGHTLY, 100, before={"plan": jobs}, only=("measure", "merge"))


def stored_nights(place: Path):
    return list_nights(open_store(place / "inductor-watch.db", write=False))


def test_the_first_night_in_two_shards_is_one_night_with_nothing_to_hold_it_against(service):
    run = Run(service, NIGHTLY, 100)
    jobs = run.go()
    (plan,), measured, (merge,) = jobs["plan"], jobs["measure"], jobs["merge"]
    assert [job.name for job in measured] == ["measure 01", "measure 02"], plan
    assert {job.result for job in (plan, *measured, merge)} == {"success"}, f"{plan}{measured}{merge}"
    assert "night actions-100-1: 4 cells in 2 shards" in plan.summary
    assert "all of them taken on" in merge.step("Ingest").printed
    assert merge.step("Gate").outcome == merge.step("Regressions").outcome == "skipped"
    assert "The first night" in merge.summary
    (night,) = stored_nights(service.cache("inductor-watch-store-100-1"))
    assert (night.night, len(night.runs), night.missing) == ("actions-100-1", 2, 0)
    assert all(found.ci_url.endswith("/actions/runs/100/attempts/1") for found in night.runs)


def test_a_night_that_got_slower_is_reported_filed_and_fails_and_is_kept(seasoned, planned, github):
    seasoned.environ["PLAYED_SLOWER"] = f"{MODELS[1]}=1.25"
    odd = seasoned.artifact(100, "bundles-99-1") / "odd.jsonl"
    odd.parent.mkdir(parents=True)
    odd.touch()  # a host whose disk was full: the night is judged without it
    jobs = after_the_plan(seasoned, planned).go()
    (merge,) = jobs["merge"]
    assert [job.result for job in jobs["measure"]] == ["success", "success"]
    assert merge.result == "failure"
    assert "1 of 3 bundles could not be stored" in merge.step("Ingest").printed, merge
    assert merge.step("Gate").outcome == "failure", merge
    assert f"regressed: huggingface/{MODELS[1]} inference float32 cpu" in merge.step("Gate").printed
    assert MODELS[1] in merge.summary and "regressed" in merge.summary
    assert [MODELS[1] in issue["title"] for issue in github.issues] == [True], merge
    assert github.tokens == {f"Bearer {TOKEN}"}
    nights = stored_nights(seasoned.cache("inductor-watch-store-100-1"))
    assert [night.night for night in nights][:2] == ["actions-100-1", "night-11"]
    assert MODELS[1] in (seasoned.artifact(100, "night-1") / "report.md").read_text()
    # What cells take was learned from the nights before: 21.5 s each, two of them a shard.
    assert len(list((seasoned.artifact(100, "plan") / "history").iterdir())) == 12
    assert "2 cells, 1 models, 0.7 min of one worker" in jobs["plan"][0].summary


@pytest.mark.slow
def test_a_shard_that_never_arrives_is_missing_until_it_does(seasoned, planned):
    seasoned.environ["PLAYED_LOST"] = "shard-02.json"
    jobs = after_the_plan(seasoned, planned).go()
    (merge,) = jobs["merge"]
    assert [job.result for job in jobs["measure"]] == ["success", "failure"]
    assert "2 cells never arrived and count as missing" in merge.step("Ingest").printed, merge
    assert merge.step("Gate").outcome == "failure"
    assert "gate: 2 missing" in merge.step("Gate").printed
    night = stored_nights(seasoned.cache("inductor-watch-store-100-1"))[0]
    assert (night.night, len(night.runs), night.missing) == ("actions-100-1", 2, 2)

    del seasoned.environ["PLAYED_LOST"]
    again = Run(seasoned, NIGHTLY, 100, attempt=2, before=jobs, only=("measure/1", "merge")).go()
    (merge,) = again["merge"]
    assert "all of them taken on" in merge.step("Ingest").printed, merge
    assert merge.step("Gate").outcome == "success"
    night = stored_nights(seasoned.cache("inductor-watch-store-100-2"))[0]
    assert (night.night, len(night.runs), night.missing) == ("actions-100-1", 2, 0)
    kept = {path.name for path in (seasoned.cache("inductor-watch-store-100-2") / "bundles").iterdir()}
    assert len(kept) == 14
    assert not any("absent" in name for name in kept)


def test_a_branch_is_held_against_its_merge_base_with_the_noise_of_the_nights(seasoned, github):
    seasoned.environ["PLAYED_SLOWER"] = f"{MODELS[0]}=1.25"
    base, head = f"{11:040x}", "e" * 40
    inputs = {"model": MODELS[0], "torch": "torch==2", "base-torch": "torch==1", "branch": "mine", "rounds": 2}
    inputs |= {"base": base, "commit": head, "pull-request": "o/r#7"}
    jobs = Run(seasoned, ADHOC, 103, inputs).go()
    (measure,), (judge,) = jobs["measure"], jobs["judge"]
    assert measure.result == "success", measure
    assert measure.outputs == {"base": f"main@{base}", "new": f"mine@{head}"}
    assert measure.step("Measure in turns").printed.count("bundle runs/") == 4
    assert judge.step("Gate").outcome == "failure", judge
    assert f"regressed: huggingface/{MODELS[0]} inference" in judge.step("Gate").printed
    assert MODELS[0] in judge.summary
    assert [comment["body"].count(MODELS[0]) > 0 for comment in github.comments] == [True]


def test_inputs_are_data_and_no_commands(seasoned, tmp_path):
    trap = tmp_path / "trap"
    evil = f"x$(touch {trap})`touch {trap}`;touch {trap}"
    inputs = {"model": evil, "config": evil, "torch": evil, "base-torch": evil, "branch": evil, "pull-request": evil}
    jobs = Run(seasoned, ADHOC, 104, inputs | {"base": "a" * 40, "commit": "b" * 40}).go()
    assert jobs["measure"][0].result == "failure"
    assert not trap.exists()


def test_the_action_makes_a_night_of_ten_lines(seasoned, tmp_path):
    seasoned.environ["PLAYED_SLOWER"] = f"{MODELS[0]}=1.25"
    spec = read(ACTION)
    given = {name: item.get("default", "") for name, item in spec["inputs"].items()} | {"plan-options": PLAN_OPTIONS}
    run = Run(seasoned, ACTION, 105)
    contexts = {**run.contexts(given), "matrix": {}, "needs": {}}
    host = Host(run, tmp_path / "host", contexts, {}, action=clone(tmp_path / "action"))
    job = host.go(Job("nightly"), spec["runs"]["steps"], {key: item["value"] for key, item in spec["outputs"].items()})
    assert job.outputs == {"night": "actions-105-1", "base": "night-11"}, job
    assert [step.name for step in job.steps if step.outcome == "failure"] == ["Gate"], job
    assert f"regressed: huggingface/{MODELS[0]}" in job.step("Gate").printed
    assert MODELS[0] in job.summary


def test_ci_asks_make_for_targets_that_there_are(service):
    jobs = Run(service, CI, 106).go()
    assert [job.name for job in jobs["check"]] == ["lint", "test", "browser"]
    # Here make only says what it would do, so the browser made no pictures: their loss is an error.
    assert [job.result for job in jobs["check"]] == ["success", "success", "failure"], jobs
    assert "test_real_data" in jobs["check"][2].step("Check").printed
    assert jobs["check"][2].step("Keep the pictures of the pages").outcome == "failure"
    assert "zizmor" in jobs["check"][0].step("Check").printed
    assert "pytest" in jobs["check"][1].step("Check").printed


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_shards_really_measured_on_a_cpu_make_one_night(service):
    del service.environ["PLAYED"]
    service.variables |= {
        "INDUCTOR_WATCH_PLAN_OPTIONS": PLAN_OPTIONS.replace(" --config freezing", ""),
        "INDUCTOR_WATCH_NIGHTLY_OPTIONS": "--samples 5 --device cpu",
        "INDUCTOR_WATCH_WORKERS": "1",
        "INDUCTOR_WATCH_BRANCH": "main",
        "INDUCTOR_WATCH_NODE": "a-class-of-runners",
    }
    jobs = Run(service, NIGHTLY, 200).go()
    assert {job.result for found in jobs.values() for job in found} == {"success"}, jobs
    (night,) = stored_nights(service.cache("inductor-watch-store-200-1"))
    assert (night.night, night.statuses, night.missing) == ("actions-200-1", {"pass": 2}, 0)
    one, other = night.runs
    assert one.run_id != other.run_id
    assert one.testbed_id == other.testbed_id
    assert one.testbed["node"] == "a-class-of-runners"
    assert {run.branch for run in night.runs} == {"main"}

"""Runs the jobs of a workflow file: every `run:` step by bash with a runner's variables, known actions as copies of folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.actions.expressions import evaluate, fill, spell

ROOT = Path(__file__).resolve().parents[3]
STAND_IN = ROOT / "tests" / "e2e" / "actions" / "python.py"
#: What a clone has and a job needs.
CLONED = (
    *("collector", "db", "analysis", "jobs", "dashboard", "scripts"),
    *("pyproject.toml", "Makefile", "README.md", "action.yml"),
)


@dataclass
class Step:
    """A step that ran: its outcome, and what it printed."""

    name: str
    outcome: str
    printed: str = ""


@dataclass
class Job:
    """One job, or one entry of its matrix."""

    name: str
    result: str = "success"
    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    def step(self, name: str) -> Step:
        """The step of this name."""
        return next(step for step in self.steps if step.name == name)

    def __str__(self) -> str:
        return "\n".join(f"--- {self.name} / {step.name}: {step.outcome}\n{step.printed}" for step in self.steps)


def read(path: Path) -> dict[str, Any]:
    """A workflow or action; YAML's own reading of `on` as true is undone."""
    data = yaml.safe_load(path.read_text())
    return {("on" if key is True else key): value for key, value in data.items()}


@dataclass
class Service:
    """What outlives a workflow run: caches and variables of the repository; and a run's artefacts."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def cache(self, key: str) -> Path:
        """Where the cache of a key is."""
        return self.folder / "caches" / key

    def artifact(self, run_id: int, name: str) -> Path:
        """Where an artefact of a run is."""
        return self.folder / "artifacts" / str(run_id) / name


@dataclass
class Run:
    """One run of a workflow. `only` repeats these jobs as "re-run failed jobs" does, with what the others left."""

    service: Service
    workflow: Path
    run_id: int
    inputs: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    before: dict[str, list[Job]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    jobs: dict[str, list[Job]] = field(default_factory=dict)

    def go(self) -> dict[str, list[Job]]:
        """Every job in the order of its needs; returns them by name, a matrix as several."""
        data = read(self.workflow)
        dispatch = (data["on"].get("workflow_dispatch") or {}).get("inputs") or {}
        assert set(self.inputs) <= set(dispatch), "inputs that the workflow does not have"
        left = dict(data["jobs"])
        # A schedule gives no inputs at all, a dispatch all of them.
        inputs = {name: spec.get("default", "") for name, spec in dispatch.items()} | self.inputs if self.inputs else {}
        while left:
            name = next(name for name, job in left.items() if not set(_listed(job.get("needs"))) & set(left))
            self.jobs[name] = self._job(name, left.pop(name), data, inputs)
        return self.jobs

    def _job(self, name: str, job: dict[str, Any], data: dict[str, Any], inputs: dict[str, Any]) -> list[Job]:
        needs = {one: self._needed(one) for one in _listed(job.get("needs"))}
        failed = any(one["result"] != "success" for one in needs.values())
        contexts = {"needs": needs, **self._contexts(inputs)}
        if not _condition(job.get("if"), contexts, failed):
            return [Job(name, "skipped")]
        strategy = fill(job.get("strategy", {}), contexts, {})
        entries = _matrix(strategy.get("matrix"))
        found = []
        for number, entry in enumerate(entries):
            if self.only and f"{name}/{number}" not in self.only and name not in self.only:
                found.append(self.before[name][number])
                continue
            here = contexts | {"matrix": entry, "strategy": strategy}
            env = fill(data.get("env", {}), here, {}) | fill(job.get("env", {}), here, {})
            folder = self.service.folder / "hosts" / f"{self.run_id}-{self.attempt}" / f"{name}-{number}"
            title = fill(job.get("name", name), here, {})
            found.append(Host(self, folder, here, env).go(Job(title), job["steps"], job.get("outputs", {})))
        return found

    def _needed(self, name: str) -> dict[str, Any]:
        jobs = self.jobs[name]
        results = {job.result for job in jobs}
        result = next((word for word in ("failure", "skipped") if word in results), "success")
        return {"result": result, "outputs": {key: value for job in jobs for key, value in job.outputs.items()}}

    def _contexts(self, inputs: dict[str, Any]) -> dict[str, Any]:
        github = {
            "run_id": self.run_id,
            "run_attempt": self.attempt,
            "repository": "owner/watched",
            "ref": "refs/heads/main",
            "token": "synthetic-token",
            "workflow": "nightly",
        }
        return {"github": github, "inputs": inputs, "vars": self.service.variables, "secrets": {}, "env": {}}


@dataclass
class Host:
    """The machine of one job: an empty workspace, and its steps one after the other."""

    run: Run
    folder: Path
    contexts: dict[str, Any]
    env: dict[str, Any]
    failed: bool = False
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    action: Path | None = None

    @property
    def workspace(self) -> Path:
        """Where steps run."""
        return self.folder / "workspace"

    @property
    def temp(self) -> Path:
        """What is emptied with every job."""
        return self.folder / "temp"

    def go(self, job: Job, steps: list[dict[str, Any]], outputs: Mapping[str, str] | None = None) -> Job:
        """Runs the steps; the job says how each ended, and what it tells the jobs after it."""
        for place in (self.workspace, self.temp, self.folder / "home"):
            place.mkdir(parents=True, exist_ok=True)
        self.contexts |= {"steps": self.done, "runner": {"temp": str(self.temp), "os": "Linux"}, "job": {}}
        for number, step in enumerate(steps):
            job.steps.append(self._step(number, step))
        job.result = "failure" if self.failed else "success"
        job.outputs = {key: spell(fill(value, self.contexts, {})) for key, value in (outputs or {}).items()}
        summary = self.folder / "summary.md"
        job.summary = summary.read_text() if summary.exists() else ""
        return job

    def _step(self, number: int, step: dict[str, Any]) -> Step:
        name = step.get("name") or step.get("uses") or f"step {number}"
        mine = self.done.setdefault(step.get("id", f"#{number}"), {"outputs": {}})
        if not _condition(step.get("if"), self.contexts, self.failed):
            mine["outcome"] = "skipped"
            return Step(name, "skipped")
        env = self.env | fill(step.get("env", {}), self.contexts, {})
        if "uses" in step:
            printed, code = self._action(step["uses"], fill(step.get("with", {}), self.contexts, {}))
        else:
            printed, code = self._shell(number, step["run"], env, mine["outputs"])
        self.failed |= code != 0
        mine["outcome"] = "failure" if code else "success"
        return Step(name, mine["outcome"], printed)

    def _shell(self, number: int, script: str, env: Mapping[str, Any], outputs: dict[str, str]) -> tuple[str, int]:
        told = self.folder / f"output-{number}"
        told.touch()
        path = self.folder / f"step-{number}.sh"
        path.write_text(fill(script, self.contexts, {}))
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(path)],
            cwd=self.workspace,
            env={**self._variables(told), **{key: spell(value) for key, value in env.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        outputs.update(line.split("=", 1) for line in told.read_text().splitlines())
        return done.stdout, done.returncode

    def _variables(self, output: Path) -> dict[str, str]:
        return {
            "PATH": f"{self.tools()}:/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_ENV": str(self.folder / "env"),
            "GITHUB_PATH": str(self.folder / "path"),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTION_PATH": str(self.action or ""),
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "owner/watched",
            "GITHUB_RUN_ID": str(self.run.run_id),
            "GITHUB_RUN_ATTEMPT": str(self.run.attempt),
            "GITHUB_SHA": "5" * 40,
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_OS": "Linux",
            **self.run.service.environ,
        }

    def tools(self) -> Path:
        """A folder with the host's `python3`: the one of this test, which installs nothing."""
        folder = self.folder / "tools"
        folder.mkdir(exist_ok=True)
        for name, line in (
            ("python3", f'exec {sys.executable} {STAND_IN} "$@"'),
            # What a target would do is `make`'s own business; that there is such a target is ours.
            ("make", 'exec /usr/bin/make --dry-run "$@"'),
        ):
            tool = folder / name
            tool.write_text(f"#!/bin/sh\n{line}\n")
            tool.chmod(0o755)
        return folder

    def _action(self, uses: str, given: Mapping[str, Any]) -> tuple[str, int]:
        name = uses.partition("@")[0]
        try:
            return _ACTIONS[name](self, given) or "", 0
        except ActionError as error:
            return str(error), 1


class ActionError(Exception):
    """What an action would say when it fails its step."""


def _checkout(host: Host, given: Mapping[str, Any]) -> None:
    assert given["persist-credentials"] is False
    clone(host.workspace)


def clone(folder: Path) -> Path:
    """What a fresh clone has of this project, as far as a job needs it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in CLONED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


def _restore(host: Host, given: Mapping[str, Any]) -> str:
    caches = host.run.service.folder / "caches"
    prefixes = [given["key"], *given.get("restore-keys", "").split()]
    for prefix in prefixes:
        found = [path for path in caches.glob("*") if path.name.startswith(prefix)]
        if found:
            newest = max(found, key=lambda path: path.stat().st_mtime_ns)
            shutil.copytree(newest, host.workspace / given["path"], dirs_exist_ok=True)
            return f"restored {newest.name}"
    return "nothing to restore"


def _save(host: Host, given: Mapping[str, Any]) -> str:
    place = host.run.service.cache(given["key"])
    if place.exists():
        return "a cache is never changed"
    shutil.copytree(host.workspace / given["path"], place)
    os.utime(place)
    return f"saved {place.name}"


def _upload(host: Host, given: Mapping[str, Any]) -> None:
    place = host.run.service.artifact(host.run.run_id, given["name"])
    if place.exists():
        if not given.get("overwrite"):
            raise ActionError(f"there is an artefact {given['name']} already")
        shutil.rmtree(place)
    sources = [host.workspace / line for line in given["path"].split()]
    found = [source for source in sources if source.is_file() or (source.is_dir() and any(source.iterdir()))]
    if not found:
        if given.get("if-no-files-found") == "error":
            raise ActionError(f"nothing at {given['path']}")
        return
    # One folder gives its contents; of several places each keeps its path.
    if len(sources) == 1 and sources[0].is_dir():
        shutil.copytree(sources[0], place)
        return
    for source in found:
        target = place / source.relative_to(host.workspace)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)


def _download(host: Host, given: Mapping[str, Any]) -> None:
    artifacts = host.run.service.artifact(host.run.run_id, "x").parent
    target = host.workspace / given["path"]
    if name := given.get("name"):
        if not (artifacts / name).exists():
            raise ActionError(f"no artefact {name}")
        shutil.copytree(artifacts / name, target, dirs_exist_ok=True)
        return
    assert given["merge-multiple"] is True
    for artifact in sorted(artifacts.glob("*")):
        if fnmatch(artifact.name, given["pattern"]):
            shutil.copytree(artifact, target, dirs_exist_ok=True)


_ACTIONS: dict[str, Callable[[Host, Mapping[str, Any]], str | None]] = {
    "actions/checkout": _checkout,
    "actions/setup-python": lambda host, given: None,
    "actions/cache/restore": _restore,
    "actions/cache/save": _save,
    "actions/upload-artifact": _upload,
    "actions/download-artifact": _download,
}


def _condition(text: str | None, contexts: Mapping[str, Any], failed: bool) -> bool:
    """Whether a job or step runs: unless its condition names a status, also only where all before it went well."""
    source = str(text if text is not None else "success()").strip().removeprefix("${{").removesuffix("}}")
    functions = {
        "always": lambda: True,
        "cancelled": lambda: False,
        "success": lambda: not failed,
        "failure": lambda: failed,
    }
    if not any(f"{name}(" in source for name in functions) and failed:
        return False
    return bool(evaluate(source, contexts, functions))


def _matrix(matrix: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if not matrix:
        return [{}]
    if "include" in matrix:
        return list(matrix["include"])
    ((name, values),) = matrix.items()
    return [{name: value} for value in values]


def _listed(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())

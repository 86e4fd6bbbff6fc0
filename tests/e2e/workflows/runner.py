"""Runs the jobs of a workflow file: each `run:` step with bash and a runner's variables; known actions copy folders."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from tests.jobs.github.server import TOKEN

ROOT = Path(__file__).resolve().parents[3]
#: The files of a clone that a job needs.
CLONED = (
    *("collector", "db", "analysis", "jobs", "dashboard", "scripts"),
    *("pyproject.toml", "Makefile", "README.md", "action.yml"),
)
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_TOKEN = re.compile(r"'[^']*'|[A-Za-z_][\w-]*(?:\.[\w-]+)*|&&|\|\||[=!]=|[!(),]")


class Expression:
    """An expression of GitHub Actions, as far as the workflows use them; a missing value is empty."""

    def __init__(self, source: str, contexts: Mapping[str, Any], failed: bool) -> None:
        self.tokens, self.contexts = _TOKEN.findall(source), contexts
        states = {"always": True, "cancelled": False, "success": not failed, "failure": failed}
        self.calls = {name: lambda value=value: value for name, value in states.items()} | {"fromJSON": json.loads}

    def value(self) -> Any:
        found = self._and()
        while self._take("||"):
            found = (found, self._and())[not found]
        return found

    def _and(self) -> Any:
        found = self._equal()
        while self._take("&&"):
            found = (self._equal(), found)[not found]
        return found

    def _equal(self) -> Any:
        found = self._one()
        while self.tokens and self.tokens[0] in ("==", "!="):
            found = (self.tokens.pop(0) == "==") == (found == self._one())
        return found

    def _one(self) -> Any:
        if self._take("!"):
            return not self._one()
        if self._take("("):
            found = self.value()
            assert self._take(")")
            return found
        word = self.tokens.pop(0)
        if word[0] == "'":
            return word[1:-1]
        if not self._take("("):
            return self._look(word)
        given = []
        while not self._take(")"):
            given.append(self.value())
            self._take(",")
        return self.calls[word](*given)

    def _look(self, path: str) -> Any:
        first, *names = path.split(".")
        value = self.contexts[first]  # an unknown context is a mistake in the workflow
        for name in names:
            value = value.get(name, "") if isinstance(value, Mapping) else ""
        return value

    def _take(self, token: str) -> bool:
        return bool(self.tokens) and self.tokens[0] == token and bool(self.tokens.pop(0))


def evaluate(source: str, contexts: Mapping[str, Any], failed: bool = False) -> Any:
    """Return the value of an expression."""
    return Expression(source, contexts, failed).value()


def fill(value: Any, contexts: Mapping[str, Any]) -> Any:
    """A value of the YAML with its expressions replaced; one that is nothing but an expression keeps its type."""
    if isinstance(value, Mapping):
        return {key: fill(item, contexts) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if (whole := _EXPRESSION.fullmatch(value)) and value.count("${{") == 1:
        return evaluate(whole[1], contexts)
    return _EXPRESSION.sub(lambda match: spell(evaluate(match[1], contexts)), value)


def spell(value: Any) -> str:
    """A value as a text, as in an environment variable."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def condition(text: str | None, contexts: Mapping[str, Any], failed: bool) -> bool:
    """Whether a job or step runs. Unless its condition names a status, all before it must have succeeded."""
    source = (text or "success()").strip().removeprefix("${{").removesuffix("}}")
    if failed and not re.search(r"\b(always|cancelled|success|failure)\(", source):
        return False
    return bool(evaluate(source, contexts, failed))


@dataclass
class Step:
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
        return next(step for step in self.steps if step.name == name)

    def __str__(self) -> str:
        return "\n".join(f"--- {self.name} / {step.name}: {step.outcome}\n{step.printed}" for step in self.steps)


def read(path: Path) -> dict[str, Any]:
    """A workflow or action; YAML's own reading of `on` as true is undone."""
    return {("on" if key is True else key): value for key, value in yaml.safe_load(path.read_text()).items()}


def clone(folder: Path) -> Path:
    """Copies what a fresh clone of this project has, as far as a job needs it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in CLONED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


@dataclass
class Service:
    """What outlives a run: the repository's caches and variables, and the artefacts of each run."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def cache(self, key: str) -> Path:
        return self.folder / "caches" / key

    def artifact(self, run_id: int, name: str) -> Path:
        return self.folder / "artifacts" / str(run_id) / name


@dataclass
class Run:
    """One run of a workflow. `only` runs these jobs again, as "re-run failed jobs" does, beside those of `before`."""

    service: Service
    workflow: Path
    run_id: int
    inputs: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    before: dict[str, list[Job]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    jobs: dict[str, list[Job]] = field(default_factory=dict)

    def go(self) -> dict[str, list[Job]]:
        """Runs every job in the file's order, which is that of their needs; returns them by name, a matrix as several."""
        data = read(self.workflow)
        known = (data["on"].get("workflow_dispatch") or {}).get("inputs") or {}
        assert set(self.inputs) <= set(known), "inputs that the workflow does not have"
        # A schedule gives no inputs at all, a dispatch all of them.
        inputs = {name: spec.get("default", "") for name, spec in known.items()} | self.inputs if self.inputs else {}
        for name in data["jobs"]:
            self.jobs[name] = self.run_job(name, data, inputs)
        return self.jobs

    def run_job(self, name: str, data: dict[str, Any], inputs: dict[str, Any]) -> list[Job]:
        job = data["jobs"][name]
        needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        needs = {one: self._needed(one) for one in needed}
        contexts = {**self.contexts(inputs), "needs": needs}
        if not condition(job.get("if"), contexts, any(one["result"] != "success" for one in needs.values())):
            return [Job(name, "skipped")]
        matrix = fill(job.get("strategy", {}), contexts).get("matrix") or {"include": [{}]}
        ((axis, values),) = matrix.items()
        found = []
        for number, entry in enumerate(values if axis == "include" else [{axis: value} for value in values]):
            if self.only and f"{name}/{number}" not in self.only and name not in self.only:
                found.append(self.before[name][number])
                continue
            here = contexts | {"matrix": entry}
            env = fill(data.get("env", {}), here) | fill(job.get("env", {}), here)
            folder = self.service.folder / "hosts" / f"{self.run_id}-{self.attempt}" / f"{name}-{number}"
            host = Host(self, folder, here, env)
            found.append(host.go(Job(fill(job.get("name", name), here)), job["steps"], job.get("outputs", {})))
        return found

    def contexts(self, inputs: dict[str, Any]) -> dict[str, Any]:
        github = {"run_id": self.run_id, "run_attempt": self.attempt, "repository": "o/r", "token": TOKEN}
        return {"github": github, "inputs": inputs, "vars": self.service.variables, "secrets": {}}

    def _needed(self, name: str) -> dict[str, Any]:
        jobs = self.jobs[name]
        result = next((word for word in ("failure", "skipped") if word in {job.result for job in jobs}), "success")
        return {"result": result, "outputs": {key: value for job in jobs for key, value in job.outputs.items()}}


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

    def go(self, job: Job, steps: list[dict[str, Any]], outputs: Mapping[str, str]) -> Job:
        """Runs the steps; the job has the outcome of each, and its outputs."""
        self.workspace, self.temp = self.folder / "workspace", self.folder / "temp"
        for path in (self.workspace, self.temp, self.folder / "home", self.folder / "tools"):
            path.mkdir(parents=True, exist_ok=True)
        self._write_tool("python3", f'exec {sys.executable} {Path(__file__).with_name("python.py")} "$@"')
        self._write_tool("make", 'exec /usr/bin/make --dry-run "$@"')
        self.contexts |= {"steps": self.done, "runner": {"temp": str(self.temp)}}
        summary = self.folder / "summary.md"
        summary.touch()
        job.steps += [self._step(number, step) for number, step in enumerate(steps)]
        job.result = "failure" if self.failed else "success"
        job.outputs = {key: spell(fill(value, self.contexts)) for key, value in outputs.items()}
        job.summary = summary.read_text()
        return job

    def _write_tool(self, name: str, line: str) -> None:
        tool = self.folder / "tools" / name
        tool.write_text(f"#!/bin/sh\n{line}\n")
        tool.chmod(0o755)

    def _step(self, number: int, step: dict[str, Any]) -> Step:
        name = step.get("name") or step.get("uses") or f"step {number}"
        state = self.done.setdefault(step.get("id", f"#{number}"), {"outputs": {}})
        if not condition(step.get("if"), self.contexts, self.failed):
            state["outcome"] = "skipped"
            return Step(name, "skipped")
        if "uses" in step:
            action = _ACTIONS[step["uses"].partition("@")[0]]
            printed = action(self, fill(step.get("with", {}), self.contexts)) or ""
            failed = printed.startswith("no ")
        else:
            env = self.env | fill(step.get("env", {}), self.contexts)
            printed, failed = self._shell(number, fill(step["run"], self.contexts), env, state["outputs"])
        self.failed |= failed
        state["outcome"] = "failure" if failed else "success"
        return Step(name, state["outcome"], printed)

    def _shell(self, number: int, script: str, env: Mapping[str, Any], outputs: dict[str, str]) -> tuple[str, bool]:
        output, path = self.folder / f"output-{number}", self.folder / f"step-{number}.sh"
        output.touch()
        path.write_text(script)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(path)],
            cwd=self.workspace,
            env={**self._variables(output), **{key: spell(value) for key, value in env.items()}},
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False},
        )
        outputs.update(line.split("=", 1) for line in output.read_text().splitlines())
        return done.stdout, done.returncode != 0

    def _variables(self, output: Path) -> dict[str, str]:
        return {
            "PATH": f"{self.folder / 'tools'}:/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_ACTION_PATH": str(self.action or ""),
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": str(self.run.run_id),
            "GITHUB_RUN_ATTEMPT": str(self.run.attempt),
            "GITHUB_SHA": "5" * 40,
            "RUNNER_TEMP": str(self.temp),
            **self.run.service.environ,
        }


def _checkout(host: Host, given: Mapping[str, Any]) -> None:
    assert given["persist-credentials"] is False
    clone(host.workspace)


def _restore(host: Host, given: Mapping[str, Any]) -> None:
    for prefix in (given["key"], *given.get("restore-keys", "").split()):
        if found := [path for path in host.run.service.cache("x").parent.glob("*") if path.name.startswith(prefix)]:
            newest = max(found, key=lambda path: path.stat().st_mtime_ns)
            shutil.copytree(newest, host.workspace / given["path"], dirs_exist_ok=True)
            return


def _save(host: Host, given: Mapping[str, Any]) -> None:
    cache = host.run.service.cache(given["key"])
    shutil.copytree(host.workspace / given["path"], cache)
    os.utime(cache)


def _upload(host: Host, given: Mapping[str, Any]) -> str | None:
    artifact = host.run.service.artifact(host.run.run_id, given["name"])
    if artifact.exists():
        if not given.get("overwrite"):
            return f"no second artefact {given['name']} without overwrite"
        shutil.rmtree(artifact)
    sources = [host.workspace / line for line in given["path"].split()]
    found = [path for path in sources if path.is_file() or (path.is_dir() and any(path.iterdir()))]
    if not found:
        return f"no files at {given['path']}" if given.get("if-no-files-found") == "error" else None
    for path in found:  # one folder gives its contents; of several each keeps its path
        target = artifact if len(sources) == 1 and path.is_dir() else artifact / path.relative_to(host.workspace)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)
    return None


def _download(host: Host, given: Mapping[str, Any]) -> str | None:
    artifacts = host.run.service.artifact(host.run.run_id, "x").parent
    pattern = given.get("name") or given["pattern"]
    assert "name" in given or given["merge-multiple"] is True
    found = [path for path in sorted(artifacts.glob("*")) if fnmatch(path.name, pattern)]
    for artifact in found:
        shutil.copytree(artifact, host.workspace / given["path"], dirs_exist_ok=True)
    return None if found or "name" not in given else f"no artefact {pattern}"


_ACTIONS = {
    "actions/checkout": _checkout,
    "actions/setup-python": lambda host, given: None,
    "actions/cache/restore": _restore,
    "actions/cache/save": _save,
    "actions/upload-artifact": _upload,
    "actions/download-artifact": _download,
}

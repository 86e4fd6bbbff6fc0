"""Play the jobs of a workflow file: bash runs each `run:` step with a runner's variables; known actions copy folders."""

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
from jinja2 import Environment, StrictUndefined

from tests.command_line import server_address
from tests.jobs.github_server import TOKEN

ROOT = Path(__file__).resolve().parents[3]
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
#: What an expression of GitHub Actions spells differently from one of Jinja; its names may have hyphens.
_TOKEN = re.compile(r"'[^']*'|&&|\|\||!(?!=)|\.([\w-]+)")
_OPERATORS = {"&&": " and ", "||": " or ", "!": " not "}
_JINJA = Environment(undefined=StrictUndefined, autoescape=True)


def read(path: Path) -> dict[str, Any]:
    """Return a workflow or action, with its key `on`, which YAML reads as true."""
    return {("on" if key is True else key): value for key, value in yaml.safe_load(path.read_text()).items()}


def evaluate(source: str, contexts: Mapping[str, Any], failed: bool = False) -> Any:
    """Return the value of an expression; a missing value is empty, an unknown context an error."""
    jinja = _TOKEN.sub(lambda m: f".get('{m[1]}', '')" if m[1] else _OPERATORS.get(m[0], m[0]), source)
    states = {"always": True, "cancelled": False, "success": not failed, "failure": failed}
    functions = {name: lambda value=value: value for name, value in states.items()}
    return _JINJA.compile_expression(jinja)({**functions, "fromJSON": json.loads, **contexts})


def fill(value: Any, contexts: Mapping[str, Any]) -> Any:
    """Replace the expressions in a value of the YAML; a value that is nothing but an expression keeps its type."""
    if isinstance(value, Mapping):
        return {key: fill(item, contexts) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if (whole := _EXPRESSION.fullmatch(value)) and value.count("${{") == 1:
        return evaluate(whole[1], contexts)
    return _EXPRESSION.sub(lambda match: spell(evaluate(match[1], contexts)), value)


def spell(value: Any) -> str:
    """Return a value as an environment variable has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def condition(text: str, contexts: Mapping[str, Any], failed: bool) -> bool:
    """Return whether a job or step runs: after a failure only if its condition names a status."""
    source = text.strip().removeprefix("${{").removesuffix("}}")
    named = re.search(r"\b(always|cancelled|success|failure)\(", source)
    return bool((named or not failed) and evaluate(source, contexts, failed))


def clone(folder: Path) -> Path:
    """Copy what `bootstrap.py` needs of a clone; the environment that it finds has this project's packages."""
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


@dataclass
class Job:
    """One job, or one entry of its matrix; its steps by name."""

    result: str = "success"
    outcomes: dict[str, str] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""


@dataclass
class Service:
    """A repository on GitHub: its variables, and the caches and artefacts that outlive a run of a workflow."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def cache(self, key: str) -> Path:
        return self.folder / "caches" / key

    def artifact(self, run_id: int, name: str) -> Path:
        return self.folder / "artifacts" / str(run_id) / name

    def contexts(self, run_id: int, attempt: int, inputs: Mapping[str, Any]) -> dict[str, Any]:
        github = {"run_id": run_id, "run_attempt": attempt, "repository": "o/r", "token": TOKEN}
        return {"github": github, "inputs": inputs, "vars": self.variables, "secrets": {}, "needs": {}, "matrix": {}}

    def play(
        self,
        workflow: Mapping[str, Any],
        run_id: int,
        inputs: Mapping[str, Any] | None = None,
        attempt: int = 1,
        kept: Mapping[str, Job] | None = None,
    ) -> dict[str, Job]:
        """Play the jobs in the file's order, which is that of their needs; return them as NAME/NUMBER IN THE MATRIX.

        The kept jobs are taken from an earlier attempt, as "re-run failed jobs" does.
        """
        known = (workflow["on"].get("workflow_dispatch") or {}).get("inputs") or {}
        assert set(inputs or {}) <= set(known), "inputs that the workflow does not have"
        # A schedule gives no inputs at all, a dispatch all of them.
        inputs = {name: spec.get("default", "") for name, spec in known.items()} | inputs if inputs else {}
        jobs: dict[str, Job] = {}
        for name, job in workflow["jobs"].items():
            contexts = self.contexts(run_id, attempt, inputs)
            needed = job.get("needs", [])
            contexts["needs"] = {one: _sum_up(one, jobs) for one in ([needed] if isinstance(needed, str) else needed)}
            failed = any(one["result"] != "success" for one in contexts["needs"].values())
            if not condition(job.get("if", "success()"), contexts, failed):
                jobs[f"{name}/0"] = Job("skipped")
                continue
            matrix = fill(job.get("strategy", {}), contexts).get("matrix", {"include": [{}]})
            for number, value in enumerate(matrix["include"]):
                key, here = f"{name}/{number}", contexts | {"matrix": value}
                if key in (kept or {}):
                    jobs[key] = kept[key]
                    continue
                env = fill(workflow.get("env", {}), here) | fill(job.get("env", {}), here)
                host = Host(self, self.folder / "hosts" / f"{run_id}-{attempt}" / key, here, env)
                jobs[key] = host.play(job["steps"], job.get("outputs", {}))
        return jobs


def _sum_up(name: str, jobs: Mapping[str, Job]) -> dict[str, Any]:
    found = [job for key, job in jobs.items() if key.startswith(f"{name}/")]
    result = next((word for word in ("failure", "skipped") if word in {job.result for job in found}), "success")
    return {"result": result, "outputs": {key: value for job in found for key, value in job.outputs.items()}}


@dataclass
class Host:
    """The machine of one job: an empty workspace, and its steps one after the other."""

    service: Service
    folder: Path
    contexts: dict[str, Any]
    env: dict[str, Any]

    def play(self, steps: list[dict[str, Any]], outputs: Mapping[str, str]) -> Job:
        """Run the steps; return the outcome of each and the job's outputs."""
        job, self.workspace = Job(), self.folder / "workspace"
        for name in ("workspace", "temp", "tools"):
            (self.folder / name).mkdir(parents=True)
        python = self.folder / "tools" / "python3"
        program = Path(__file__).with_name("python.py")
        python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -S {program} "$@"\n')
        python.chmod(0o755)
        (self.folder / "summary.md").touch()
        self.contexts |= {"steps": {}, "runner": {"temp": str(self.folder / "temp")}}
        for step in steps:
            state = self.contexts["steps"].setdefault(step.get("id", step["name"]), {"outputs": {}})
            if not condition(step.get("if", "success()"), self.contexts, job.result == "failure"):
                state["outcome"] = "skipped"
            else:
                job.printed[step["name"]], failed = self._run(step, state["outputs"])
                state["outcome"] = "failure" if failed else "success"
                job.result = "failure" if failed else job.result
            job.outcomes[step["name"]] = state["outcome"]
        job.outputs = {key: spell(fill(value, self.contexts)) for key, value in outputs.items()}
        job.summary = (self.folder / "summary.md").read_text()
        return job

    def _run(self, step: dict[str, Any], outputs: dict[str, str]) -> tuple[str, bool]:
        if "uses" in step:
            action = _ACTIONS[step["uses"].partition("@")[0]]
            error = action(self, fill(step.get("with", {}), self.contexts)) or ""
            return error, bool(error)
        script, output = self.folder / "step.sh", self.folder / "output"
        script.write_text(fill(step["run"], self.contexts))
        output.write_text("")
        env = self._variables() | self.env | fill(step.get("env", {}), self.contexts)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.workspace,
            env={key: spell(value) for key, value in env.items()},
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False},
        )
        outputs.update(line.split("=", 1) for line in output.read_text().splitlines())
        return done.stdout, done.returncode != 0

    def _variables(self) -> dict[str, Any]:
        github = self.contexts["github"]
        return {
            "PATH": f"{self.folder / 'tools'}:/usr/bin:/bin",
            "HOME": self.folder,
            "COLUMNS": "200",
            "GITHUB_OUTPUT": self.folder / "output",
            "GITHUB_STEP_SUMMARY": self.folder / "summary.md",
            "GITHUB_ACTION_PATH": self.folder / "action",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": github["repository"],
            "GITHUB_RUN_ID": github["run_id"],
            "GITHUB_RUN_ATTEMPT": github["run_attempt"],
            "RUNNER_TEMP": self.folder / "temp",
            "PROGRAM_SERVER": server_address(),
            **self.service.environ,
        }


def _checkout(host: Host, given: Mapping[str, Any]) -> None:
    assert given["persist-credentials"] is False
    clone(host.workspace)


def _restore(host: Host, given: Mapping[str, Any]) -> None:
    caches = sorted(host.service.cache("").glob("*"), key=lambda path: -path.stat().st_mtime_ns)
    for prefix in (given["key"], *given["restore-keys"].split()):
        if found := [path for path in caches if path.name.startswith(prefix)]:
            shutil.copytree(found[0], host.workspace / given["path"], dirs_exist_ok=True)
            return


def _save(host: Host, given: Mapping[str, Any]) -> None:
    os.utime(shutil.copytree(host.workspace / given["path"], host.service.cache(given["key"])))


def _upload(host: Host, given: Mapping[str, Any]) -> str | None:
    artifact = host.service.artifact(host.contexts["github"]["run_id"], given["name"])
    if artifact.exists() and not given.get("overwrite"):
        return f"{given['name']} exists already"
    shutil.rmtree(artifact, ignore_errors=True)
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
    assert "name" in given or given["merge-multiple"] is True
    pattern = given.get("name") or given["pattern"]
    artifacts = host.service.artifact(host.contexts["github"]["run_id"], "")
    found = [path for path in sorted(artifacts.glob("*")) if fnmatch(path.name, pattern)]
    for artifact in found:
        shutil.copytree(artifact, host.workspace / given["path"], dirs_exist_ok=True)
    return None if found or "name" not in given else f"no artefact {pattern}"


def _deploy_pages(host: Host, given: Mapping[str, Any]) -> str | None:
    artifact = host.service.artifact(host.contexts["github"]["run_id"], given["artifact_name"])
    if not artifact.is_dir():
        return f"no artefact {given['artifact_name']}"
    shutil.copytree(artifact, host.service.folder / "pages")
    return None


_ACTIONS = {
    "actions/checkout": _checkout,
    "actions/setup-python": lambda host, given: None,
    "actions/cache/restore": _restore,
    "actions/cache/save": _save,
    "actions/upload-artifact": _upload,
    "actions/download-artifact": _download,
    "actions/upload-pages-artifact": lambda host, given: _upload(host, {"if-no-files-found": "error", **given}),
    "actions/deploy-pages": _deploy_pages,
}

"""Rows that belong to one run, and the bundle that they make: its name is a hash of what is in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from collector.bundle import BundleContents, RunHeader
from collector.process.outcome import Outcome
from collector.vocabulary import canonical_json, short_hash
from db.importing.cells import Given, Identity, identify
from db.importing.merging import merge
from db.importing.provenance import Origin, Provenance, settle
from db.importing.rows import Row, Target, Told
from db.queries.moments import from_epoch

#: How a run that was measured elsewhere says so; the cost model leaves such runs out.
TRIGGER = "import"


@dataclass(slots=True)
class _Group:
    """Rows of one run."""

    origin: Origin
    testbed: dict[str, Any]
    rows: list[tuple[Identity, Row]]


def runs_of(rows: Sequence[Row], asked: Provenance, given: Given, problems: list[str]) -> list[BundleContents]:
    """The runs that rows make up, in the order in which they were met.

    A run is what one workflow measured of one commit on one kind of machine. Rows of which the cell or the commit is
    not known are left out, with a line a file in `problems`.
    """
    groups: dict[str, _Group] = {}
    lacking: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        identity = identify(row, given)
        origin = settle(row.told, asked)
        for lack in (identity, origin):
            if isinstance(lack, str):
                lacking[row.source.name, lack].append(row.line)
        if isinstance(identity, str) or isinstance(origin, str):
            continue
        testbed = _testbed(row, identity)
        key = canonical_json([origin.repo, origin.branch, origin.commit, row.told.workflow_id, testbed])
        groups.setdefault(key, _Group(origin, testbed, [])).rows.append((identity, row))
    for (name, lack), lines in lacking.items():
        problems.append(f"{name}: {len(lines)} row{'s' * (len(lines) > 1)} left out (line {lines[0]}): {lack}")
    return [_run(group, asked, problems) for group in groups.values()]


def _run(group: _Group, asked: Provenance, problems: list[str]) -> BundleContents:
    # A later attempt of a workflow comes after an earlier one, so that it is the one that counts.
    ordered = sorted(group.rows, key=lambda pair: pair[1].told.run_attempt or 1)
    told = [row.told for _, row in ordered]
    moments = [item.timestamp for item in told if item.timestamp is not None] if asked.date is None else []
    begin, end = min(moments, default=group.origin.date), max(moments, default=group.origin.date)
    started_at, finished_at = from_epoch(begin).isoformat(), from_epoch(end).isoformat()
    outcomes = merge(ordered, started_at, asked.date is not None, problems)
    header = RunHeader(
        run_id="",
        branch=group.origin.branch,
        commit=group.origin.commit,
        testbed=group.testbed,
        started_at=started_at,
        repo=group.origin.repo,
        trigger=TRIGGER,
        label=asked.label,
        attempt=max((item.run_attempt or 1 for item in told), default=1),
        commit_date=group.origin.commit_date,
        commit_title=group.origin.commit_title,
        ci_url=_ci_url(group.origin.repo, told),
    )
    return _contents(header, outcomes, finished_at, asked.tool_version)


def _contents(header: RunHeader, outcomes: Sequence[Outcome], finished_at: str, tool_version: str) -> BundleContents:
    measurements = [outcome.measurement for outcome in outcomes]
    environments = {o.measurement.environment_id: o.environment for o in outcomes if o.measurement.environment_id}
    content = [header.to_json(), sorted(canonical_json(item.to_json()) for item in measurements), environments]
    # Of the content alone: the same files twice are one run, and one that differs in a digit is another.
    run_id = f"import-{header.started_at[:10].replace('-', '')}-{short_hash(content)}"
    planned = list(dict.fromkeys(item.cell for item in measurements))
    return BundleContents(
        replace(header, run_id=run_id, tool_version=tool_version),
        planned,
        {str(name): data for name, data in environments.items()},
        measurements=measurements,
        finished_at=finished_at,
        attempt=header.attempt,
    )


def _ci_url(repo: str, told: Sequence[Told]) -> str:
    """Where the workflow can be looked at; GitHub's addresses are made of its number."""
    workflow = next((item.workflow_id for item in told if item.workflow_id), "")
    return f"https://github.com/{repo}/actions/runs/{workflow}" if workflow.isdigit() else ""


def _testbed(row: Row, identity: Identity) -> dict[str, Any]:
    """What must be equal for latencies to be comparable, as far as it is told; another harness is another testbed."""
    harness = "GraphNet" if row.target is Target.GRAPHNET else "benchmarks/dynamo"
    if row.kind.benchmark not in (None, "TorchInductor"):
        harness = str(row.kind.benchmark)
    found: dict[str, Any] = {"harness": harness, "device": identity.device, "accelerator": identity.accelerator}
    runners = row.extra.get("runners")
    runner = runners[0] if isinstance(runners, list) and runners and isinstance(runners[0], dict) else {}
    words = {"type": "runner", "gpu_info": "gpu", "gpu_count": "gpu_count", "cpu_info": "cpu", "cpu_count": "cores"}
    # A runner's own name is left out: any of a kind may take a shard.
    return found | {ours: runner[theirs] for theirs, ours in words.items() if runner.get(theirs) not in (None, "", 0)}

"""Synthetic nights for reports: quiet ones, one that got worse, and one whose names are markup."""

import pytest
from click.testing import CliRunner

from analysis.reports.facts import build_report
from collector.vocabulary import Config, Failure, Stage, Status
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries.cells import EVERYTHING
from jobs.cli import app
from tests.analysis.compare.test_cell_verdicts import MODELS, make_run
from tests.factories import cell, failing, header, new_store, night, passing, write_bundle

DASHBOARD = "https://dash.example/iw"
HOSTILE = ["<script>alert(1)</script>", "a|b`c", "@octocat fixes #1", "[x](https://evil.example)"]
HOSTILE += ["*b* _i_ ~s~ \\| &amp;"]


def with_evidence(*kernels, slower=1.0, breaks=0):
    """A way to measure with these kernels and so many graph breaks."""

    def make(which):
        base = 2.0 * (1 + MODELS.index(which.model))
        metrics = {"eager_ms": base * 2, "compiled_ms": base * slower, "compiled_kernel_ms": base * 0.75 * slower}
        metrics |= {"compile_cold_s": 10.0, "graph_breaks": float(breaks), "roof_share": 0.61 / slower}
        lines = {"lines": ["bert.py:9  x.add(y)"], "kernels": {name: [0] for name, *_ in kernels}}
        details = {"compiled_kernels": [list(row) for row in kernels], "kernel_lines": lines, "checked_by": "nothing"}
        if breaks:
            details |= {"graph_break_reasons": {"call to print": breaks}, "checked_by": "cosine"}
        return passing(which, minutes=661 + 60 * (slower > 1), samples={}, metrics=metrics, details=details)

    return make


@pytest.fixture(scope="session")
def nights(tmp_path_factory):
    """Twelve quiet nights, then one with a slower model, a broken one, a fixed one and a missing one."""
    folder = tmp_path_factory.mktemp("nights")
    store = new_store(folder / "store.db")
    for number in range(11):
        make_run(store, folder, number)
    evidence = with_evidence(("triton_red_fused_add_3", 2, 0.9))
    make_run(store, folder, 11, slower={MODELS[3]: evidence, MODELS[6]: failing})
    kernels = ("triton_red_fused_add_7", 2, 0.9), ("triton_poi_new_1", 1, 0.6)
    failure = Failure(Stage.COMPILE, "BackendCompilerFailed", "no kernel\n\nfits", "set fullgraph=False")
    slower = {
        MODELS[3]: with_evidence(*kernels, slower=1.1, breaks=2),
        MODELS[5]: lambda which: failing(which, Status.OOM, failure=failure),
        MODELS[2]: {"compiled_ms": 0.9},
    }
    make_run(store, folder, 12, slower=slower)
    empty = write_bundle(folder, header("r13", minutes=780), [], planned=[cell(model) for model in MODELS])
    ingest_bundle(store, empty)
    ingest_bundle(store, night(folder, "apart", cells=[cell("elsewhere")], minutes=900))
    store.dispose()
    return str(folder / "store.db")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """Two runs of models whose names are markup: slower, broken and missing ones."""
    folder = tmp_path_factory.mktemp("hostile")
    store = new_store(folder / "store.db")
    cells = [cell(name, Config(overrides={"x": name})) for name in HOSTILE]
    evil = {"environment": {"torch": "<b>@team</b>", "a|b": "1"}}
    message = failing(cells[0]).failure
    message.message, message.hint = "<img src=x onerror=alert(1)> @octocat", "`|`"
    ingest_bundle(store, write_bundle(folder, header("one", label="@all <i>"), [passing(which) for which in cells]))
    later = [failing(which, failure=message, environment_id="e2") for which in cells[:-1]]
    ingest_bundle(store, write_bundle(folder, header("two", minutes=60), later, planned=cells, **evil))
    store.dispose()
    return str(folder / "store.db")


def report_of(database, base="r11", new="r12", dashboard=""):
    with open_store(database, write=False).connect() as conn:
        return build_report(conn, base, new, EVERYTHING, dashboard)


def call(database, *words, **environ):
    return CliRunner().invoke(app, ["report", *words, "--db", database], env=environ)

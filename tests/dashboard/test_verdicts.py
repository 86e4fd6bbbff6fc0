"""The verdicts on the pages: those of the command line, whatever is filtered, and in words a person can act on."""

import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from analysis.elements import overview_tables
from collector.metrics import MIN_EFFECT
from dashboard import url
from dashboard.data import Data, Pair
from dashboard.views import compare_page
from db.engine import open_store
from tests.analysis.compare import cells
from tests.dashboard import stores
from tests.dashboard.conftest import cells_of, plain


@pytest.fixture(scope="module")
def judged(two_nights):
    """The two nights' comparison as pages have it."""
    engine = open_store(two_nights, write=False)
    yield Data(engine, str(two_nights)).comparison(Pair("night-0", "night-1"))
    engine.dispose()


def test_a_filter_hides_cells_and_changes_no_verdict(open_app, two_nights):
    everything, some = open_app(two_nights, "compare"), open_app(two_nights, "compare", suite="timm")
    wanted = [" ".join(line.split()) for line in plain(everything).splitlines() if "Noise from run to run" in line]
    line = re.search(r"Noise from run to run.*? repeats\.", wanted[0])[0]
    assert line in " ".join(plain(some).split())
    all_rows, few = cells_of(everything), cells_of(some)
    columns = ["config", "outcome", "compiled latency", "cold compile"]
    of_suite = all_rows[all_rows["model"].str.contains("resnet50|vit_base")]
    assert len(few) == 6 and sorted(map(tuple, few[columns].values)) == sorted(map(tuple, of_suite[columns].values))


def test_where_no_noise_is_known_the_page_says_what_to_do(open_app, tmp_path):
    commits = enumerate(stores.SHAS[:2])
    bundles = [stores.run(tmp_path, f"n{at}", at, seed=at, commit=sha, slower=("gpt2",) * at) for at, sha in commits]
    store = stores.store(tmp_path / "once.db", bundles)
    said = plain(open_app(store))
    assert "Undecided: 6 of 6 models." in said and "Nothing" not in said.partition("Undecided")[0]
    assert "24 cells: 23 no clear change, 1 not applicable." in said
    assert "is not known yet" in said and "Measure one side again" in said


def test_the_sentence_says_what_would_settle_most(judged):
    for more, said in (([3.0, 5.0, 40.0], "5"), ([1.0, math.inf, math.inf], "even 50")):
        latencies = [cells.of("compiled_ms", "inconclusive", 0.01, more_runs=number) for number in more]
        undecided = tuple(cells.compared("inconclusive", "compiled_ms", [one]) for one in latencies)
        assert f"({said} more runs" in overview_tables.compared_sentence(replace(judged, cells=undecided), url.link)


def test_the_csv_has_everything_and_starts_no_formula(judged):
    written = compare_page.csv(pd.DataFrame({"model": ["=1+1", "bert"], "speedup": [-1.0, None]})).decode()
    assert written.splitlines() == ["model,speedup", "'=1+1,-1.0", "bert,"]
    head = compare_page.csv(judged.to_frame()).decode().partition("\n")[0].split(",")
    parts = ("verdict", "change", "low", "high", "q", "more_runs")
    assert {f"{metric}_{part}" for metric in MIN_EFFECT for part in parts} <= set(head)

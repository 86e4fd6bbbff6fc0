"""The verdicts on the pages: those of the command line, whatever is filtered, and in words a person can act on."""

import re

import numpy as np
import pandas as pd
import pytest

from analysis.compare.verdicts import compare_and_judge
from analysis.reports.suites import group_intervals
from collector.metrics import MIN_EFFECT
from dashboard.components import outcomes
from dashboard.data import Data, Pair
from dashboard.views.compare import rows
from dashboard.views.overview import groups, headline
from db.engine import open_store
from db.queries.filters import EVERYTHING
from tests.dashboard import stores
from tests.dashboard.conftest import cells_of, plain

PAIR = Pair("night-0", "night-1")


def looks_of(cells):
    """The classes of each metric's fields."""
    shown = rows.compared(cells, cells, rows.COLUMNS, lambda _: "")
    return {name: {field.css for field in shown[name]} for name in shown.columns[3:]}


@pytest.fixture(scope="module")
def judged(two_nights):
    """The two nights' cells with outcomes, and the judgement of the command line."""
    engine = open_store(two_nights, write=False)
    data = Data(engine, str(two_nights))
    cells = data.comparison(PAIR, EVERYTHING).cells
    told = compare_and_judge(engine, "night-0", "night-1")[1]
    yield outcomes.with_outcomes(cells, data.judgement(PAIR).cells), told
    engine.dispose()


def test_the_pages_count_what_the_command_line_counts(judged):
    cells, told = judged
    counted = {name: number for name, number in cells["outcome"].value_counts().items() if name != "not_applicable"}
    assert counted == told.counts() and counted["regressed"] == 6


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
    store = stores.fill_gpus(tmp_path / "once.db", tmp_path, (1, 1))
    said = plain(open_app(store))
    assert "Nothing got worse. Of 6 models, 6 no clear change." in said
    assert "24 cells: 23 no clear change, 1 not applicable." in said
    assert "is not known yet" in said and "Measure one side again" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([3.0, 5.0, 40.0], " (5 more runs of each side would settle most)"),
        ([1.0, 1.0, np.inf], " (1 more run of each side would settle most)"),
        ([3.0, np.inf, np.inf], " (even 50 more runs of each side would not settle most)"),
        ([0.0, np.nan, 4.0], " (even 50 more runs of each side would not settle most)"),
        ([np.nan, np.nan], ""),
    ],
)
def test_the_sentence_says_what_would_settle_most(more, said):
    cells = pd.DataFrame({"outcome": "inconclusive", "more_runs": more, "expected_base": True, "expected_new": True})
    sentence = re.sub(r"<[^>]+>", "", headline.compared_sentence(cells))
    assert sentence == f"{len(more)} cells: {len(more)} no clear change{said}."


def test_the_table_goes_from_what_broke_to_what_stayed_and_the_csv_has_everything(judged):
    found = judged[0].iloc[rows.compared_order(judged[0])]
    assert list(dict.fromkeys(found["outcome"]))[:2] == ["broke", "regressed"]
    changes = found[found["outcome"] == "regressed"]["outcome_change"].tolist()
    assert changes == sorted(changes, reverse=True)
    head = rows.csv(found).decode().partition("\n")[0].split(",")
    parts = ("verdict", "change", "low", "high", "q", "more_runs")
    assert {f"{metric}_{part}" for metric in MIN_EFFECT for part in parts} <= set(head)


def test_only_a_metrics_own_verdict_colours_its_change_and_none_on_another_machine(judged):
    cells = judged[0][judged[0]["outcome"] == "regressed"]
    here = looks_of(cells)
    assert here["compiled latency"] == here["device time"] == {"n worse"}
    assert here["speedup"] == here["peak memory"] == {"n"}
    assert looks_of(cells.assign(comparable=False))["compiled latency"] == {"n"}


@pytest.mark.parametrize(("models", "has_one"), [(4, False), (5, True)])
def test_an_average_has_an_interval_from_five_models_on(models, has_one):
    axes = {"suite": "timm", "phase": "inference", "dtype": "amp", "device": "cuda", "config_id": "c"}
    told = {"transition": "both_pass", "testbed_changed": [False] * (models - 1) + [True]}
    told |= {f"{metric}_verdict": "regressed" for metric in MIN_EFFECT}
    values = {f"{metric}_{side}": level for metric in groups.TABLES for side, level in (("base", 2.0), ("new", 2.2))}
    cells = pd.DataFrame(axes | told | values | {"model": [f"model{number}" for number in range(models)]})
    found = group_intervals(cells, groups.TABLES)
    assert {metric for _, metric in found} == set(groups.TABLES)
    assert all((within is not None) == has_one for within, _ in found.values())
    assert {metric: set(allowed) for (_, metric), (_, allowed) in found.items()} == {
        **{metric: {"worse"} for metric in groups.TABLES},
        "compile_cold_s": set(),  # one model moved to another machine
    }

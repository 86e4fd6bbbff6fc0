"""Verdicts, order and sentences of two nights on GPUs that came with the checkout."""

from dataclasses import replace

import pytest

from analysis.compare.cell_comparison import CHANGES, Outcome
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import causes
from analysis.present import sentence
from analysis.reports.facts import build_report
from analysis.reports.markdown_report import markdown
from collector.metrics import Dimension
from db.queries.cells import EVERYTHING
from tests.dashboard import stores

#: What convnextv2 keeps where a commit broke the fusion of its kernels.
BUFFER = "buf = empty_strided_cuda((128, 320, 72, 72), (1658880, 1, 23040, 320), torch.float32)"


@pytest.fixture(scope="module")
def conn(tmp_path_factory):
    """Nights a, b and c: two of one commit, then one of another."""
    store = stores.shipped(tmp_path_factory.mktemp("nights") / "store.db")
    with stores.open_store(store, write=False).connect() as opened:
        yield opened


def test_every_judged_cell_is_ranked_the_worst_first_and_has_a_cause(conn):
    comparison = compare_named(conn, "b", "c")
    ranked = comparison.ranked()
    assert len(ranked) == len(comparison.cells) == sum(comparison.counts().values()) == 67
    assert [one.cell.model for one in ranked[:3]] == ["T5Small", "adamw_step", "adamw_step"]
    worst, _ = comparison.ranked_findings(CHANGES)[0]
    assert worst.cell.model == "T5Small"
    found = {cause.title: len(cause.changes) for cause in causes(conn, comparison)}
    assert (found["fused softmax kernels"], found["fused layer norm kernels"]) == (16, 8)
    assert found["peak memory"] == 8, "those under cudagraphs: their memory is that of the graph"
    assert found[f"+849 MB alive at the peak (0 -> 1 times): {BUFFER}"] == 1


def test_two_nights_of_one_commit_are_not_worse(conn):
    """Some compile times are undecided: those of one program differ by 20 % on that host."""
    comparison = compare_named(conn, "a", "b")
    assert sentence(comparison) == "Nothing is known to have got worse. Undecided: 14 of 28 models."
    latencies = [one for cell in comparison.cells for one in cell.findings if one.dimension is Dimension.LATENCY]
    assert {str(one.verdict) for one in latencies} == {"unchanged", "inconclusive"}

    # Where nothing was judged nothing is said to be fine.
    moved = Outcome.ENVIRONMENT_CHANGED
    for outcomes, said in (
        ([moved], "Environment changed: 67 cells."),
        ([Outcome.STILL_FAILING], "Still failing: 67 cells."),
        ([Outcome.UNCHANGED], "Nothing got worse. Unchanged: 28 models."),
        ([Outcome.UNCHANGED, moved, moved], "Nothing is known to have got worse. Environment changed: 44 cells."),
    ):
        cells = [replace(one, outcome=outcomes[at % len(outcomes)]) for at, one in enumerate(comparison.cells)]
        assert sentence(replace(comparison, cells=tuple(cells))) == said

    # What fails now is said where base could not be judged, too.
    def failing(one, status):
        base, new = replace(one.base, status=status), replace(one.new, status="fail_accuracy")
        return replace(one, base=base, new=new, outcome=Outcome.NOT_APPLICABLE, findings=())

    first, *rest = (replace(one, outcome=Outcome.UNCHANGED) for one in comparison.cells)
    cells = (failing(first, "ill_conditioned"), *rest)
    said = sentence(replace(comparison, cells=cells))
    assert (
        said == f"Failing in new, not judged in base: 1 cell ({first.cell.model}). Nothing is known to have got worse."
    )
    alone = sentence(replace(comparison, cells=cells[:1]))
    assert (
        alone == f"Nothing was measured on both sides. Failing in new, not judged in base: 1 cell ({first.cell.model})."
    )
    assert sentence(replace(comparison, cells=(first, *rest))) == "Nothing got worse. Unchanged: 28 models."


def test_regressions_are_said_although_most_cells_have_no_base(conn):
    confirming = "20261126-111347-db7a"
    found = build_report(conn, confirming, "c", EVERYTHING)
    assert found.exit_code == 3
    assert markdown(found).startswith("## inductor-watch: 4 regressed, 63 cells without a base\n")
    assert found.sentence.startswith(
        "63 of 67 cells of new have no base: name another one; of the others: 4 regressed. New is"
    )

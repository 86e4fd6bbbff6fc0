"""Verdicts, order and sentences of two nights on GPUs that came with the checkout."""

import pytest

from analysis.compare.cell_comparison import CHANGES, Outcome
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import causes
from analysis.present import sentence
from collector.metrics import Dimension
from tests.dashboard import stores

#: What convnextv2 keeps where a commit broke the fusion of its kernels.
BUFFER = "buf = empty_strided_cuda((128, 320, 72, 72), (1658880, 1, 23040, 320), torch.float32)"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Nights a, b and c: two of one commit, then one of another."""
    return stores.shipped(tmp_path_factory.mktemp("nights") / "store.db")


@pytest.fixture(scope="module")
def conn(store):
    engine = stores.open_store(store, write=False)
    with engine.connect() as opened:
        yield opened


def test_every_judged_cell_is_ranked_the_worst_first_and_has_a_cause(conn):
    comparison = compare_named(conn, "b", "c")
    ranked = comparison.ranked()
    assert len(ranked) == len(comparison.cells) == sum(comparison.counts().values()) == 67
    assert [one.cell.model for one in ranked[:3]] == ["T5Small", "adamw_step", "adamw_step"]
    worst, _ = comparison.ranked_findings(CHANGES)[0]
    assert worst.cell.model == "T5Small"
    memory = [one.verdict for cell in comparison.cells for one in cell.findings if one.dimension is Dimension.MEMORY]
    assert (memory.count(Outcome.REGRESSED), memory.count(Outcome.IMPROVED)) == (10, 9)
    found = {cause.title: len(cause.changes) for cause in causes(conn, comparison)}
    assert (found["fused softmax kernels"], found["fused layer norm kernels"]) == (16, 8)
    assert found["peak memory"] == 8, "those under cudagraphs: their memory is that of the graph"
    assert found[f"+849 MB alive at the peak (0 -> 1 times): {BUFFER}"] == 1


def test_two_nights_of_one_commit_are_not_worse(conn):
    """Their compile times are undecided: those of one program differ by 20 % on that host."""
    comparison = compare_named(conn, "a", "b")
    assert sentence(comparison) == "Undecided: 28 of 28 models."
    found = {
        str(finding.verdict)
        for one in comparison.cells
        for finding in one.findings
        if finding.dimension is Dimension.LATENCY
    }
    assert found == {"unchanged", "inconclusive"}

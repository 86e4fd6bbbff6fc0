"""A census agrees with a night where both have the same code for a cell, by the same software."""

import pytest

from collector.bundle import CENSUS
from db.ingest import ingest_bundle
from jobs.census.census_runs import EQUAL, Agreement, CensusCell, read_truth
from tests.factories import cell, header, new_store, passing, write_bundle

SOFTWARE = {"torch": "2.13.0+cu130", "torch_git": "a" * 40, "triton": "3.7.0", "gpu": "NVIDIA H200"}
TESTBED = {"device": "cuda", "gpu": "NVIDIA H200"}


@pytest.fixture
def bundle(tmp_path):
    measured = [passing(cell("bert"), code_id="c0de"), passing(cell("gpt2"), code_id="beef"), passing(cell("t5"))]
    return write_bundle(tmp_path / "runs", header("n-1", testbed=TESTBED), measured, environment=SOFTWARE)


def taken(model, code_id, known=True, environment=SOFTWARE):
    facts = {"known": known, "questions": []}
    return CensusCell(passing(cell(model), code_id=code_id, details={CENSUS: facts}), environment)


def test_cells_are_counted_by_how_they_agree(bundle):
    agreement = Agreement(read_truth(str(bundle), "no.db"))
    words = [
        agreement.took(one)
        for one in (taken("bert", "c0de"), taken("gpt2", "0ther"), taken("t5", "c0de"), taken("gpt2", "beef", False))
    ]
    assert words == [EQUAL, "DIFFERS", "not in the night", ""]
    assert (agreement.cells, agreement.known, agreement.equal, agreement.not_measured) == (4, 3, 1, 1)
    assert list(agreement.differing) == [cell("gpt2").cell_id]
    agreement.correct(taken("gpt2", "beef"))
    assert (agreement.equal, agreement.differing) == (2, {})


def test_code_of_other_software_is_not_compared(bundle):
    agreement = Agreement(read_truth(str(bundle), "no.db"))
    assert agreement.took(taken("bert", "c0de", environment={**SOFTWARE, "triton": "3.8.0"})) == "not in the night"


def test_a_commit_that_changes_no_file_is_the_installed_torch(bundle):
    truth = read_truth(str(bundle), "no.db")
    assert truth.codes({**SOFTWARE, "source": "0 files of 0123456789 over 70d99e998b"})
    assert not truth.codes({**SOFTWARE, "source": "1 files of 0123456789 over 70d99e998b"})


def test_the_device_is_that_of_the_night(bundle):
    assert read_truth(str(bundle), "no.db").device_name == "H200"
    assert read_truth(str(bundle.parent), "no.db").device_name == "H200"


def test_a_night_of_the_database_is_compared_like_its_bundle(bundle, tmp_path):
    store = new_store(tmp_path / "store.db")
    ingest_bundle(store, bundle)
    truth = read_truth("n-1", str(tmp_path / "store.db"))
    assert truth.codes(SOFTWARE) == read_truth(str(bundle), "no.db").codes(SOFTWARE)

"""A run id names the file of its bundle: always one in the folder of the writer."""

import pytest

from collector.bundle import BundleError, BundleWriter
from tests.factories import at, cell, header


@pytest.mark.parametrize(
    "run_id", ["../up", "/absolute/path", "..", ".", "", "a/b", "a\\b", ".hidden", "a\x00b", "a\nb"]
)
def test_a_run_id_that_leads_elsewhere_is_refused_and_nothing_is_made(run_id, tmp_path):
    folder = tmp_path / "a" / "runs"
    with pytest.raises(BundleError, match="cannot name a file") as caught:
        BundleWriter(folder, header(run_id), [cell()])
    assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run_id", ["x" * 201, "\u00e9" * 101, "a\ud800b", "a\u202eb"])
def test_a_run_id_that_no_file_can_have_is_refused(run_id, tmp_path):
    with pytest.raises(BundleError, match="at most 200 bytes") as caught:
        BundleWriter(tmp_path, header(run_id), [cell()])
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    "run_id", ["it's", '"quoted"', "<script>", "'; DROP TABLE runs; --", "\U0001f525", "x" * 200, "a b"]
)
def test_an_odd_run_id_that_a_file_can_have_is_one(run_id, tmp_path):
    path = BundleWriter(tmp_path, header(run_id), [cell()]).close(at(1))
    assert path == tmp_path / f"{run_id}.jsonl.gz"
    assert path.is_file()

"""Records in the order in which people read them: by the commit of their onset, the largest change first."""

from datetime import timedelta
from types import SimpleNamespace

from analysis.history.regression_record import Listed, by_commit
from tests.factories import COMMIT_A, COMMIT_B, START


def record(name, commit, metric, base, new):
    at = START + timedelta(hours=commit == COMMIT_B)
    fields = {"branch": "main", "repo": "pytorch/pytorch", "onset_commit": commit, "onset_at": at, "opened_at": at}
    return Listed(SimpleNamespace(metric=metric, base_value=base, new_value=new, **fields), name)


def test_records_of_a_commit_stand_together_with_the_largest_change_first():
    records = [
        record("old", COMMIT_A, "compiled_ms", 1.0, 2.0),
        record("small", COMMIT_B, "compiled_ms", 1.0, 1.1),
        record("memory", COMMIT_B, "compiled_peak_bytes", 1.0, 3.0),
        record("large", COMMIT_B, "compiled_ms", 1.0, 1.4),
        record("broke", COMMIT_B, None, None, None),
    ]
    newest, oldest = by_commit(records)
    assert [one.name for one in newest.records] == ["broke", "large", "small", "memory"]
    assert (newest.commit, newest.tally) == (COMMIT_B, "1 correctness, 2 latency, 1 memory")
    assert [one.name for one in oldest.records] == ["old"]

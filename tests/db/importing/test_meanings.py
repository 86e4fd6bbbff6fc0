import pytest

from collector.vocabulary import Stage, Status
from db.importing.pytorch_names import meaning_of


@pytest.mark.parametrize(
    ("status", "stage", "words"),
    [
        (Status.PASS, Stage.DONE, "pass pass_due_to_skip"),
        (Status.FAIL_ACCURACY, Stage.CORRECTNESS, "fail_accuracy not_bitwise_equivalent fail_batch_invariance_at_8"),
        (Status.NONDETERMINISTIC, Stage.EAGER, "eager_variation eager_two_runs_differ"),
        (Status.OOM, Stage.EAGER, "eager_1st_run_OOM eager_2nd_run_OOM"),
        (Status.EAGER_FAIL, Stage.EAGER, "eager_1st_run_fail eager_2nd_run_fail eager_fail_to_run"),
        (Status.FAIL_TO_RUN, Stage.COMPILE, "fail_to_run fail_to_run_at_batch_32 warmup_failed"),
        (Status.TIMEOUT, Stage.START, "timeout"),
    ],
)
def test_every_word_of_pytorch_is_known(status, stage, words):
    assert {meaning_of(word) for word in words.split()} == {(status, stage, True)}


@pytest.mark.parametrize("status", Status)
def test_our_own_words_stand_for_themselves(status):
    assert meaning_of(status.value).status is status


@pytest.mark.parametrize("word", ["passed_somehow", "0.5", "\N{ROCKET}", "x" * 10_000, "", "passe", "PASS"])
def test_a_word_that_nobody_knows_is_never_a_pass(word):
    found = meaning_of(word)
    assert not found.is_known
    assert found.status is not Status.PASS

import pytest

from collector.vocabulary import Stage, Status
from db.importing.meanings import meaning_of


@pytest.mark.parametrize(
    ("word", "status", "stage"),
    [
        ("pass", Status.PASS, Stage.DONE),
        ("fail_accuracy", Status.FAIL_ACCURACY, Stage.CORRECTNESS),
        ("eager_variation", Status.NONDETERMINISTIC, Stage.EAGER),
        ("eager_two_runs_differ", Status.NONDETERMINISTIC, Stage.EAGER),
        ("OOM", Status.OOM, Stage.COMPILE),
        ("eager_1st_run_OOM", Status.OOM, Stage.EAGER),
        ("eager_2nd_run_OOM", Status.OOM, Stage.EAGER),
        ("eager_1st_run_fail", Status.EAGER_FAIL, Stage.EAGER),
        ("eager_2nd_run_fail", Status.EAGER_FAIL, Stage.EAGER),
        ("eager_fail_to_run", Status.EAGER_FAIL, Stage.EAGER),
        ("model_fail_to_load", Status.MODEL_FAIL_TO_LOAD, Stage.LOAD_MODEL),
        ("fail_to_run", Status.FAIL_TO_RUN, Stage.COMPILE),
        ("fail_to_run_at_batch_32", Status.FAIL_TO_RUN, Stage.COMPILE),
        ("fail_batch_invariance_at_8", Status.FAIL_ACCURACY, Stage.CORRECTNESS),
        ("not_bitwise_equivalent", Status.FAIL_ACCURACY, Stage.CORRECTNESS),
        ("warmup_failed", Status.FAIL_TO_RUN, Stage.COMPILE),
        ("timeout", Status.TIMEOUT, Stage.START),
        ("infra_error", Status.CRASHED, Stage.START),
    ],
)
def test_every_word_of_pytorch_is_known(word, status, stage):
    found = meaning_of(word)
    assert (found.status, found.stage, found.is_known) == (status, stage, True)


@pytest.mark.parametrize("status", Status)
def test_our_own_words_stand_for_themselves(status):
    assert meaning_of(status.value).status is status


@pytest.mark.parametrize("word", ["passed_somehow", "0.5", "\N{ROCKET}", "x" * 10_000, "", "passe", "PASS"])
def test_a_word_that_nobody_knows_is_never_a_pass(word):
    found = meaning_of(word)
    assert not found.is_known
    assert found.status is not Status.PASS


def test_an_unknown_word_goes_by_its_spelling():
    assert meaning_of("compiled_3rd_run_OOM").status is Status.OOM
    assert meaning_of("eager_3rd_run_fail").status is Status.EAGER_FAIL

"""Pull requests, reverts and relands as they stand in messages."""

from hypothesis import given, settings
from hypothesis import strategies as st

from db.commits.links import read_message, read_subject


def test_the_pull_request_is_the_last_number_at_the_end():
    numbers = {
        "[inductor] dont reuse buffers if it affects peak (#145883) (#159530)": 159530,
        "Merge pull request #77 from somebody/branch": 77,
        "Fix #1234 in the scheduler": None,
        "Too long for any column (#99999999999)": None,
    }
    assert {subject: read_subject(subject).pr_number for subject in numbers} == numbers


def test_a_subject_says_what_it_does_to_the_one_it_quotes():
    kinds = {
        "Reverting order of loops (#12)": ("plain", None),
        'Back out "Make it faster (#12)" (#13)': ("revert", 12),
        'Reapply "Make it faster (#12)"': ("reland", 12),
        "[inductor][Re-land] Make it faster (#13)": ("reland", None),
        'Revert "Revert "Make it faster (#12)""': ("reland", 12),
        'Revert "Reapply "Make it faster (#12)""': ("revert", 12),
    }
    assert {one: (read_subject(one).kind, read_subject(one).quoted_pr) for one in kinds} == kinds


def test_shas_are_those_that_are_said_to_be_reverted():
    shas = {
        "Original commit changeset: aec3ef1008": ("aec3ef1008",),
        "this reverts commit AEC3EF1008AEC3EF1008AEC3EF1008AEC3EF1008.": ("aec3ef1008" * 4,),
        "This reverts commits aec3ef1, 1234567 and 89abcdef.": ("aec3ef1", "1234567", "89abcdef"),
        "This reverts commit 1234567, reversing\nchanges made to 89abcdef.": ("1234567",),
        "This reverts commit abc123.": (),
        "[HUD commit link](aec3ef1008)": (),
    }
    assert {message: read_message('Back out "x"', message).reverts for message in shas} == shas


def test_a_text_says_what_it_lands_again():
    assert read_message("Something else", "Original commit changeset: aec3ef1008").reverts == ()
    for text in ("Reland of #12", "This is a reland of PR #12.", "Relanding https://github.com/a/b/pull/12"):
        assert read_message("Make it faster, at last (#13)", text).relands_pr == 12
    assert read_message('Revert "x (#13)"', "Reverted; reland of #12 is to come").relands_pr is None


HOSTILE = (
    "[", "[a]", 'Revert "', "This reverts commit ", "abcdef1 ", "a", "reland ", "(#1)", '"', " ", "https://github.com/a/b/pull/",
    "<script>", "\N{PILE OF POO}", "\n",
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(HOSTILE), st.sampled_from([1, 2, 500])), max_size=6))
def test_no_message_fails_or_takes_for_ever(pieces):
    text = "".join(piece * count for piece, count in pieces)
    # Patterns that go back and forth would take minutes for these, and run into the suite's time limit.
    found = read_message(text, text)
    assert len(found.reverts) <= 100 and all(len(sha) >= 7 for sha in found.reverts)

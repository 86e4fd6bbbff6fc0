"""One model, as closely as the store knows it: two measurements side by side, and how it went from run to run."""

from __future__ import annotations

from dashboard.selection import Selection, current
from dashboard.views.model import choice as model_choice
from dashboard.views.model import code, evidence, history, kernels
from dashboard.views.model.verdict import cell_verdict


def page(selection: Selection) -> None:
    """Draws the page."""
    choice = model_choice.choose(selection)
    if choice is None:
        return
    halves = model_choice.halves(selection, choice)
    verdict = cell_verdict(selection, choice, halves)
    # In the order of the question: what became of it, why, by how much, because of what, since when, under which options.
    evidence.sides(halves, verdict)
    evidence.failures(halves)
    failed = any(half.measured and not half.passes for half in halves)
    if failed:
        evidence.repro(selection.data, halves)
    evidence.metrics(halves, verdict)
    evidence.runs(choice, halves)
    evidence.sizes(halves)
    evidence.compile_passes(halves)
    code.show(selection.data, halves)
    kernels.show(halves)
    history.show(selection, choice, verdict.decided if verdict else "")
    evidence.samples(selection.data, halves)
    evidence.differences(selection.data, halves)
    evidence.reasons(halves)
    if not failed:
        evidence.repro(selection.data, halves)


page(current())

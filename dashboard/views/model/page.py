"""One model, as closely as the store knows it: two measurements side by side, and how it went from run to run."""

from __future__ import annotations

from dashboard.components import charts
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
    evidence.metrics(halves, verdict)
    evidence.runs(choice, halves)
    evidence.sizes(halves)
    evidence.failures(halves)
    kernels.show(halves)
    code.show(selection.data, halves)
    figures = evidence.samples(selection.data, halves)
    figures += history.show(selection, choice, verdict.decided if verdict else "")
    evidence.differences(selection.data, halves)
    evidence.reasons(halves)
    evidence.repro(selection.data, halves)
    charts.offer(figures)


page(current())

"""One model, as closely as the store knows it: two measurements side by side, and how it went from run to run."""

from __future__ import annotations

from dashboard.components.pictures import Gallery
from dashboard.pages.model import choice as model_choice
from dashboard.pages.model import history as model_history
from dashboard.pages.model import kernels as model_kernels
from dashboard.pages.model import sections as model_parts
from dashboard.pages.model import verdict as model_verdict
from dashboard.selection import Selection, current


def page(selection: Selection) -> None:
    """Draws the page."""
    choice = model_choice.choose(selection)
    if choice is None:
        return
    sides = model_choice.sides(selection, choice)
    gallery = Gallery()
    verdict = model_verdict.cell_verdict(selection, choice, sides)
    model_parts.status(sides, verdict)
    model_parts.failures(sides)
    model_kernels.show(sides)
    model_parts.samples(selection.data, sides, gallery)
    model_history.show(selection, choice, gallery, verdict.decided if verdict else "")
    model_parts.surroundings(selection.data, sides)
    model_parts.reasons(sides)
    model_parts.repro(sides)
    gallery.offer()


page(current())

"""What a page says when there is nothing to show: one sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from dashboard import url
from dashboard.components.formats import moment
from dashboard.components.markup import anchor, draw, joined, paragraph
from dashboard.components.sides import commit_words
from db.queries.sides import Side
from db.runs import NightInfo

FILL = """\
make nightly                       # measure this machine's zoo and store it
inductor-watch ingest data/nights  # or read the bundles that came with the checkout"""


def show(title: str, sentence: str, commands: str = "") -> None:
    """A calm box; the commands, if any, below it to copy."""
    box = Markup('<div class="iw iw-state" role="status"><h1>{}</h1>{}</div>')
    st.html(box.format(title, sentence))
    if commands:
        # Highlighted words are too faint for some, and a box that scrolls cannot be reached by the keyboard.
        st.code(commands, language=None, wrap_lines=True)


def neighbours(side: Side, nights: Sequence[NightInfo], page: str, key: str = "new", **changes: str) -> None:
    """Links to the nights nearest to a side, of those (newest first) that have what it lacks; nothing where none has.

    The links open `page`, with the night under `key` of the address, and with `changes`. The side's own nights are left out.
    """
    others = [night for night in nights if not {run.run_id for run in night.runs} & set(side.run_ids)]
    at = side.runs[0].started_at
    nearest = [
        *[("next", night) for night in others if night.started_at > at][-1:],
        *[("previous", night) for night in others if night.started_at <= at][:1],
    ]
    if others and others[0] not in [night for _, night in nearest]:
        nearest.insert(0, ("newest", others[0]))
    links = []
    for word, night in nearest:
        words = " · ".join([moment(night.started_at), *commit_words(night.runs[0])[:3], night.place])
        links.append(Markup("{}: {}").format(word, anchor(url.link(page, **{key: night.night}, **changes), words)))
    if links:
        draw(paragraph("iw-links", joined(" ", ["Nights that have it, the", joined("; the ", links)])))

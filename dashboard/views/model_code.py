"""The model page's generated code and kernels: what differs, where the time of a call goes, and how far it is from the roof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from analysis.compare.kernel_groups import explained
from analysis.compare.side_differences import (
    changes,
    kernel_evidence,
    listed_kernels,
)
from analysis.elements.program_tables import (
    KINDS,
    ROOF_CAPTION,
    SourceText,
    all_texts,
    beside_table,
    code_sentence,
    difference,
    differing_texts,
    evidence_table,
    kernel_table,
    rate_words,
    roof_table,
    roof_times,
    sources,
)
from analysis.elements.wording import bullets, count, mono, paragraph
from collector.code import Code
from dashboard import url
from dashboard.data import Data
from dashboard.views.model_choice import Half
from dashboard.widgets import download, draw, file_name, known, markdown, segments, select, soft
from db.queries.details import code_of, texts_of, with_kernels

_UNKNOWN = (
    "No generated code is stored of {}: it was measured before bundles kept the code, Inductor did not compile it, or its "
    "compilation failed."
)
_COLUMNS = (
    "Device time of one call, from the profiler pass: it lists the 24 kernels that take longest and adds up those of one name. "
    "Operations: what Inductor fused. Configuration: what autotuning chose. From: the lines of the model's source."
)
_LOST = "Its text is no longer stored."


def show(data: Data, halves: Sequence[Half]) -> None:
    """Draws the section; a sentence where a side has no code."""
    codes = [
        (half, code_of(data.engine, half.measured.run_id, half.measured.cell.cell_id))
        for half in halves
        if half.measured
    ]
    if not codes:
        return
    st.header("Generated code", anchor=False)
    for half, code in codes:
        if code is None:
            soft(_UNKNOWN.format(half.title))
    stored = [(half, code) for half, code in codes if code is not None]
    if not stored:
        return
    items = _compared(data, stored) if len(stored) == 2 else all_texts(stored[0][1])
    _look(data, items, [half.title for half, _ in stored])
    _scripts(data, stored)


def _compared(data: Data, codes: Sequence[tuple[Half, Code]]) -> dict[str, list[SourceText]]:
    """Draws what changed. Returns what differs, or all of it where nothing does."""
    (base, before), (new, after) = codes
    measured = [half.measured for half in (base, new) if half.measured]
    details = [with_kernels(data.engine, each.cell.cell_id, each.details) for each in measured]
    changed = changes(before, after)
    draw(paragraph("", code_sentence(changed, after)))
    if parts := explained(details[0], details[1], changed):
        draw(paragraph("", "What explains the change of device time:"), bullets("", (mono(one.text) for one in parts)))
    if rows := kernel_evidence(changed, details[0], details[1]):
        draw(evidence_table(rows, [base.title, new.title]))
        if any(row.base_ms is not None or row.new_ms is not None for row in rows):
            st.caption(_COLUMNS)
    return all_texts(after) if changed.same else differing_texts(rows, before.graphs, after.graphs)


def _look(data: Data, items: Mapping[str, list[SourceText]], heads: Sequence[str]) -> None:
    """A box with all that can be looked at, and the text of what is picked: both sides, or what differs between them."""
    if not items:
        return
    first = next(iter(items))
    title = known("kernel", items, first)
    select("kernel", "Source", list(items), title, default=first)
    stored = texts_of(data.engine, [text_id for text_id, _ in items[title]])
    if any(text_id not in stored for text_id, _ in items[title]):
        soft(_LOST)
        return
    whole = [shown(stored[text_id]) for text_id, shown in items[title]]
    language = "cpp" if title.startswith("cpp_") else "python"
    shown = sources(whole)
    if len(shown) < 2:
        st.code(shown[0], language=language, wrap_lines=True)
        return
    segments("sources", "Show", {"": "what differs", "both": "side by side"}, url.choice("sources"))
    if url.choice("sources"):
        for place, text in zip(st.columns(2), shown, strict=True):
            place.code(text, language=language, wrap_lines=True)
    else:
        st.code(difference(shown, heads), language="diff", wrap_lines=True)


def _scripts(data: Data, codes: Sequence[tuple[Half, Code]]) -> None:
    """Folds with the whole generated code of each graph: sent only where somebody opens them."""
    for half, code in codes:
        graphs = count(len(code.graphs), "graph")
        fold = st.expander(
            markdown(f"All generated code of {half.title}: {graphs}"), key=f"code_{half.role}", on_change="rerun"
        )
        if not fold.open:
            continue
        ids = {text_id for graph in code.graphs for text_id in (graph.wrapper, *(one.text_id for one in graph.kernels))}
        texts = texts_of(data.engine, ids)
        with fold:
            for number, graph in enumerate(code.graphs, 1):
                script = graph.script(texts) if graph.wrapper in texts else _LOST
                st.code(script, language="python", wrap_lines=True)
                if half.cell and graph.wrapper in texts:
                    name = file_name(f"{half.cell.suite} {half.cell.model} {half.title} graph {number}")
                    key = f"save_code_{half.role}_{number}"
                    download("As a file", script.encode, f"{name}.py", "text/x-python", key=key)
            st.caption("Each is a script of its own: with the same torch it runs and times itself.")


def show_kernels(halves: Sequence[Half]) -> None:
    """Draws which kernels the time goes to, which of them changed, and the compiled ones beside eager's."""
    of_kind = {
        kind: [list(listed_kernels(half.measured.details, kind)) if half.measured else [] for half in halves]
        for kind in KINDS
    }
    kinds = {kind: KINDS[kind] for kind, of_halves in of_kind.items() if any(of_halves)}
    if not kinds:
        return
    if of_kind["compiled"][-1] and of_kind["eager"][-1]:
        kinds["beside"] = "compiled beside eager"
    st.header("Kernels", anchor=False)
    kind = url.get("kernels") if url.get("kernels") in kinds else next(iter(kinds))
    if len(kinds) > 1:
        segments("kernels", "Kernels of", kinds, kind, default="compiled")
    last = halves[-1]
    if kind == "beside":
        draw(
            beside_table(
                last.role, last.cell.dtype if last.cell else "as_is", of_kind["eager"][-1], of_kind["compiled"][-1]
            )
        )
    else:
        details = [half.measured.details if half.measured else {} for half in halves]
        draw(kernel_table([half.role for half in halves], of_kind[kind], kind, details))
    st.caption(
        "Device time of one call by kernel, from the profiler pass. Numbers at the end of generated names are left out, "
        "since they shift when a fusion comes or goes. Kernels of the same operations are added up. "
        "The profiler lists the 24 that take longest: ≤ is the most that another one can take. "
        "From: the lines of the model's source that the kernel was generated from."
    )


def show_roof(halves: Sequence[Half]) -> None:
    """Draw the kernels that lose most against the roof, of both sides; a sentence where a side has none, and nothing on a CPU."""
    sides = [(half, half.measured.details if half.measured else {}) for half in halves]
    rows = [roof_times(details) for _, details in sides]
    reasons = [f"{half.title}: {details['no_roof']}." for half, details in sides if details.get("no_roof")]
    if not any(rows) and not reasons:
        return
    st.header("Distance from the roof", anchor=False)
    shares = [(half.role, half.measured.metrics.get("roof_share")) for half in halves if half.measured]
    if told := [f"{role} {share:.0%}" for role, share in shares if share is not None]:
        draw(paragraph("", f"The kernels together are at {', '.join(told)} of the roof."))
    if any(rows):
        draw(roof_table([half.role for half in halves], rows, [details for _, details in sides]))
    if reasons:
        soft(*(f"No share of the roof for {reason}" for reason in reasons))
    st.caption(" ".join(filter(None, (markdown(rate_words(sides[-1][1])), ROOF_CAPTION))))

"""Compared cells made by hand, for tests of what is said of them."""

from analysis.compare.cell_comparison import CellComparison, Judged, Outcome, findings, transition
from collector.metrics import METRICS
from db.queries.cells import CellName
from db.queries.side_rows import CellState


def name(model="bert", suite="huggingface", config="default", phase="inference"):
    return CellName(f"id of {model} {config}", suite, model, phase, "bfloat16", "cuda", 8, config, f"id of {config}")


def state(cell, status="pass", values=None, **fields):
    """A measured state; without a cell one that the side does not expect."""
    return CellState(cell, status=status, run_id="r" if status else None, values=values or {}, **fields)


def compared(
    outcome, metric=None, judged=(), statuses=("pass", "pass"), values=({}, {}), moved=False, code_changed=None
):
    """A cell with what was judged of it, an iterable of `Judged`; `values` are the metrics of base and of new."""
    cell = name()
    codes = {True: ("one", "other"), False: ("one", "one"), None: (None, None)}[code_changed]
    beds = ("here", "there" if moved else "here")
    base, new = (
        state(cell, status, of_side, code_id=code_id, testbed_id=bed)
        for status, of_side, code_id, bed in zip(statuses, values, codes, beds, strict=True)
    )
    by_name = {one.metric: one for one in sorted(judged, key=lambda one: list(METRICS).index(one.metric))}
    outcome = Outcome(outcome)
    found = findings(outcome, metric, by_name, moved=moved)
    word = transition(base, new)
    return CellComparison(cell, base, new, word, outcome, metric, by_name, found, False, None, True, False)


def of(metric, verdict, change=None, **parts):
    """A judged metric, adjusted by nothing."""
    return Judged(metric, Outcome(verdict), change, **({"adjusted": change} | parts))

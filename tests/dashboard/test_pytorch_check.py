"""PyTorch's own accuracy check beside ours: its rate, the cells that it judges otherwise, and its words."""

from analysis.compare.compare_sides import compare
from analysis.reports.facts import evidence_of
from collector.vocabulary import Status
from db.engine import open_store
from db.queries.sides import resolve_side
from tests.dashboard import stores
from tests.dashboard.conftest import text_of
from tests.factories import cell, failing, night, passing

WORDS = "fail_accuracy: grad[<b>]: RMSE"


def make(which):
    if which.model == "t5":
        return failing(which)
    if which.model == "gpt2":
        checked = {"metrics": {"accuracy_pytorch": 1.0}, "details": {"accuracy_pytorch": "pass"}}
        return failing(which, Status.FAIL_ACCURACY, **checked)
    found = passing(which)
    found.metrics["accuracy_pytorch"] = float(which.model != "bert")
    found.details["accuracy_pytorch"] = WORDS if which.model == "bert" else "pass"
    return found


def test_what_pytorch_judges_otherwise_is_named_and_shown_as_text(open_app, tmp_path):
    cells = [cell(model) for model in ("bert", "gpt2", "opt", "vit", "t5")]
    made = [night(tmp_path, name, cells=cells, make=make, minutes=at) for at, name in enumerate(("one", "two"))]
    store = stores.store(tmp_path / "checked.db", made)
    engine = open_store(store, write=False)
    with engine.connect() as conn:
        found = compare(conn, resolve_side(conn, "one"), resolve_side(conn, "two"))
        evidence = {one.cell.model: " ".join(evidence_of(conn, one)) for one in found.cells}
    engine.dispose()
    (note,) = (note for note in found.notes if "PyTorch" in note)
    assert "passes 3 of 5 cells of new" in note and "t5" not in note and "opt" not in note
    assert "bert" in note and "(fail there, pass here)" in note and "gpt2" in note
    assert f"PyTorch's own check of new: {WORDS}; here pass" in evidence["bert"]
    assert "PyTorch" not in evidence["t5"] + evidence["opt"]
    # The pages.
    assert "PyTorch&#39;s own accuracy check passes 3 of 5 cells" in text_of(open_app(store))
    said = text_of(open_app(store, page="model", model="huggingface/bert"))
    assert "says otherwise of new" in said and "grad[&lt;b&gt;]" in said

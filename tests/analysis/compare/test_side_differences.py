"""Generated code side by side, and the kernels that explain a change of device time: hand-made rows, as no GPU is needed."""

from dataclasses import replace

from analysis.compare.kernel_groups import explained
from analysis.compare.side_differences import changes, environment_differences, kernel_evidence
from analysis.history.alerts import explanation_of
from analysis.reports.facts import evidence_of
from collector.bundle import CENSUS
from collector.code import Code, Graph, Kernel
from collector.vocabulary import Status
from db.queries.details import evidence, with_kernels
from tests.analysis.compare import judging
from tests.factories import cell, passing

ADD, SUM = Kernel("triton_poi_fused_add_0", "a" * 16, "aten.add"), Kernel("triton_red_fused_sum_1", "b" * 16)


def code(name, *graphs):
    """A code of graphs, each a list of kernels; its id is `name`."""
    return Code(name, tuple(Graph(f"wrapper of {name}", tuple(kernels)) for kernels in graphs))


def details(*kernels):
    return {"compiled_kernels": [list(row) for row in kernels]}


MUL = Kernel("triton_poi_fused_mul_1", "c" * 16)
SUM_2 = replace(SUM, name="triton_red_fused_sum_2")


def test_kernels_are_matched_by_text_and_then_by_name():
    other = replace(SUM, text_id="d")
    for graphs, whats, words in (
        ([[ADD, MUL, SUM_2]], {ADD: "", MUL: "added", SUM_2: ""}, "1 kernel changed"),
        ([[other]], {other: "changed", ADD: "removed"}, "2 kernels changed"),
        ([[ADD], [SUM, ADD]], {ADD: "", SUM: ""}, "wrapper changed"),
    ):
        found = changes(code("one", [ADD, SUM]), code("two", *graphs))
        assert {pair.name: pair.what for pair in found.pairs} == {one.name: what for one, what in whats.items()}
        assert found.words == words
    # Of two kernels of one name neither is the changed one.
    new = [ADD, MUL, replace(SUM_2, text_id="d"), replace(SUM_2, name="triton_red_fused_sum_3", text_id="e")]
    found = changes(code("one", [ADD, SUM]), code("two", new))
    assert sorted(pair.what for pair in found.pairs) == ["", "added", "added", "added", "removed"]


def test_a_gain_is_no_loss_and_what_hardly_differs_has_no_cause():
    before = details((SUM.name, 2, 1.21))
    assert explained(before, details((SUM.name, 2, 1.0)))[0].text == "triton_red_fused_sum -0.21 ms, 100 % of the gain"
    assert explained(before, details((SUM.name, 2, 1.215))) == ()


OTHER = Kernel(SUM.name, "d" * 16)
CODES = {name: code(name, kernels) for name, kernels in {"one": [ADD, SUM], "two": [ADD, OTHER]}.items()}
TIMED = {"eager_ms": 4.0, "compiled_ms": 2.0, "speedup": 2.0, "compile_cold_s": 10.0}


def test_the_source_of_an_overlay_is_told_in_words():
    sides = [[{"torch": "2.11.0+cu130", "source": f"{count} files of 29ec0a66b7 over 70d99e998b"}] for count in (0, 1)]
    (found,) = environment_differences(*sides)
    assert (found.base, found.new) == (("torch 2.11.0, unpatched",), ("1 file of 29ec0a66b7 over torch 2.11.0",))


def test_a_kernel_tuned_differently_is_shown_though_its_text_is_equal():
    sides = (
        details((SUM.name, 1, 1.0)) | {"autotuned": [[SUM.name, 0, f"XBLOCK: {block}", None]]} for block in (64, 8)
    )
    (row,) = kernel_evidence(changes(CODES["one"], CODES["one"]), *sides)
    assert (row.what, row.base_winner, row.new_winner) == ("tuned differently", "XBLOCK: 64", "XBLOCK: 8")


def measured(model, name, metrics=None, **changes):
    return passing(cell(model), samples={}, code_id=name, metrics=metrics or TIMED, **changes)


def coded_night(store, folder, number, cells, **changes):
    head = {"minutes": 1440 * number, "commit": f"{number:040x}", "codes": [(one, {}) for one in CODES.values()]}
    judging.put_run(store, folder, f"n{number}", cells, **head, **changes)


def test_a_cell_of_known_code_is_unchanged_and_says_of_which_night(store, tmp_path):
    """In the second night `same` was not timed again, `other` has other code, and `both` was timed twice."""
    carried = {"only": "code", "same_code_as": "n0"}
    same, other = measured("same", "one", {"compile_cold_s": 10.5}, details=carried), measured("other", "two")
    coded_night(store, tmp_path, 0, [measured(model, "one") for model in ("same", "other", "both")])
    coded_night(store, tmp_path, 1, [same, other, measured("both", "one")])
    comparison, cells = judging.judged(store)
    assert cells["code"].to_dict() == {"same": "same code as n0", "other": "1 kernel changed", "both": "same code"}
    assert cells["verdict"].to_dict() == {"same": "unchanged", "other": "inconclusive", "both": "inconclusive"}
    assert cells.loc["same", "verdict_metric"] is None and comparison.counts()["unchanged"] == 1
    assert "1 of 3 cells of new were not timed again: same code as n0 (1)" in comparison.notes
    assert "generated code: 2 of 3 cells have the same on both sides" in comparison.notes
    shown = {one["model"]: one for one in comparison.to_json()["cells"]}
    assert shown["same"]["new"]["same_code_as"] == "n0" and shown["same"]["code_changed"] is False
    assert shown["other"]["code"] == "1 kernel changed" and shown["other"]["base"]["code_id"] == "one"


def test_the_same_code_under_other_libraries_proves_nothing(store, tmp_path):
    before = {"torch": "2.13", "cublas": "13.1", "source": "main"}
    for number, changed in enumerate(({}, {"source": "branch"}, {"cublas": "13.2"})):
        found = measured("bert", "one", TIMED if not number else {"compile_cold_s": 10.0}, environment_id=f"e{number}")
        coded_night(store, tmp_path, number, [found], environment=before | changed)
    verdicts = [judging.judged(store, "n0", new)[1].loc["bert", "verdict"] for new in ("n1", "n2")]
    assert verdicts == ["unchanged", "inconclusive"]


def test_cells_of_two_censuses_are_told_apart_by_their_code(store, tmp_path):
    def generated(model, name, **changes):
        return measured(model, name, {}, status=Status.NOT_CHECKED, **changes)

    environment = {"torch": "2.13", CENSUS: "H100"}
    for number, other in enumerate(("one", "two")):
        cells = [generated("bert", "one"), generated("gpt2", other)]
        put = {"environment": environment | {"source": f"{number} files"}, "trigger": CENSUS, "night": f"c{number}"}
        cells = [replace(one, environment_id=f"e{number}") for one in cells]
        coded_night(store, tmp_path, number, cells, **put)
    comparison, rows = judging.judged(store, "c0", "c1")
    assert rows["verdict"].to_dict() == {"bert": "unchanged", "gpt2": "inconclusive"}
    assert rows["code"].to_dict() == {"bert": "same code", "gpt2": "1 kernel changed"}
    assert not judging.cell_of(comparison, "gpt2").findings, "nothing is known of how it runs"
    latency = judging.cell_of(comparison, "bert").leading
    assert (latency.dimension, latency.verdict) == ("latency", "unchanged")


def test_a_loss_after_a_carried_night_is_explained_by_who_timed_its_code(store, tmp_path):
    """The first night has a run of each code, the second was not timed again, and in the third there is other code."""
    timed = [measured("bert", code, details=details((SUM.name, 2, ms))) for code, ms in (("two", 9.0), ("one", 1.0))]
    known = measured("bert", "one", {"compile_cold_s": 10.0}, details={"only": "code", "same_code_as": "nightly"})
    slower = measured("bert", "two", details=details((SUM.name, 2, 1.5)))
    nights = ("nightly", "nightly", "n2", "n3")
    for number, (found, night) in enumerate(zip((*timed, known, slower), nights, strict=True)):
        coded_night(store, tmp_path, number, [found], night=night)
    bert = judging.cell_of(judging.judged(store, "n2", "n3")[0], "bert")
    assert bert.code_changed and bert.base.same_code_as.startswith("nightly@")
    with store.connect() as conn:
        assert any("+0.500 ms, 100 % of the loss" in line for line in evidence_of(conn, bert))
        kernels = with_kernels(conn, bert.cell.cell_id, evidence(conn, "n2", bert.cell.cell_id)[0])["compiled_kernels"]
    assert kernels == [[SUM.name, 2, 1.0]]
    assert explanation_of(store, "n2", "n3", bert.cell.cell_id)[1].startswith(f"{SUM.name} +0.5 ms, 100 %")

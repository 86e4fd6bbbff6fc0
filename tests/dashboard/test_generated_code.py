"""Generated code on the pages: the column and filter of Compare, and the Model page's section, on hand-made kernels."""

import pytest

from analysis.elements.wording import ABSENT
from collector.code import DEFINITION, KERNEL, Code, Graph, Kernel
from tests.dashboard import stores
from tests.dashboard.conftest import cells_of, plain, ran, text_of, unfolded
from tests.factories import cell, header, passing, write_bundle

ADD, SUM = "a" * 16, "b" * 16
SLOW, HOSTILE = "d" * 16, "e" * 16
TEXTS = {
    ADD: f"async_compile.triton('{KERNEL}', '''tl.store(x + 1)''')",
    SUM: f"async_compile.triton('{KERNEL}', '''\nXBLOCK = 64\ntl.sum(x)''')",
    SLOW: f"async_compile.triton('{KERNEL}', '''\nXBLOCK = 8\ntl.sum(x)''')",
    HOSTILE: f"async_compile.triton('{KERNEL}', '''# {stores.HOSTILE}''')",
}


def code(code_id, *kernels):
    """A graph of these kernels, with its texts."""
    lines = [f"{KERNEL}_{one.text_id} = {DEFINITION}" for one in kernels]
    wrapper = f"{code_id:0<16}"
    texts = {wrapper: "\n".join([f"# {code_id}", *lines]), **{one.text_id: TEXTS[one.text_id] for one in kernels}}
    return Code(code_id, (Graph(wrapper, kernels),)), texts


SIZES = [
    {"batch_size": 8, "length": 64, "eager_ms": 4.0, "compiled_ms": 2.2, "static_ms": 2.0, "recompiles": 0},
    {"batch_size": 4, "length": 32, "eager_ms": 2.0, "compiled_ms": 1.0, "recompiles": 1, "status": "pass"},
]
EVIDENCE = {
    "kernel_lines": {
        "lines": [f"gpt2.py:{line}  {stores.HOSTILE}" for line in range(5)],
        "kernels": {"triton_red_fused_sum_2": [0, 1, 2, 3, 4]},
    },
    "roof": {
        **{"known": 0.97, "copy_gb_s": 2900.4, "product_tflop_s": {stores.HOSTILE: 640}},
        "kernels": [["triton_red_fused_sum_2", 2, 1.21, 0.5], [stores.HOSTILE, 1, 0.1, 0.2], ["cut", 1]],
    },
}
OLD = code("c0de1", Kernel("triton_poi_fused_add_0", ADD, "Source Nodes: [add]"), Kernel("triton_red_fused_sum_1", SUM))
NEW = code(
    "c0de2",
    Kernel("triton_poi_fused_mul_0", HOSTILE, "Source Nodes: [y, z], Original ATen: [aten.mul, prims.sum]"),
    Kernel("triton_poi_fused_add_1", ADD, "Source Nodes: [add]"),
    Kernel("triton_red_fused_sum_2", SLOW, f"Source Nodes: [{stores.HOSTILE}]"),
)


def measured(model, minutes, code_id=None, kernels=(), tuned=(), **details):
    found = passing(cell(model), minutes=minutes)
    details |= {"compiled_kernels": [list(row) for row in kernels], "autotuned": [list(row) for row in tuned]}
    metrics = {"compile_cold_s": 9.0} if "only" in details else found.metrics
    return passing(cell(model), minutes=minutes, code_id=code_id, metrics=metrics, details=details)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """gpt2 has other code in the second night, bert the same, t5 was not timed again, and opt has no code."""
    folder = tmp_path_factory.mktemp("code")
    before = [("triton_poi_fused_add_0", 1, 1.0), ("triton_red_fused_sum_1", 2, 1.0)]
    after = [
        ("triton_poi_fused_mul_0", 1, 0.04),
        ("triton_poi_fused_add_1", 1, 1.0),
        ("triton_red_fused_sum_2", 2, 1.21),
    ]
    nights = {
        "n0": [
            measured("gpt2", 1, "c0de1", before, [["triton_red_fused_sum_1", 4, "XBLOCK: 64", 0.1]]),
            *(measured(model, 1, "c0de1") for model in ("bert", "t5")),
            measured("opt", 1),
        ],
        "n1": [
            measured("gpt2", 1441, "c0de2", after, [["triton_red_fused_sum_2", 4, "XBLOCK: 8", 0.2]], **EVIDENCE),
            measured("bert", 1441, "c0de1", sizes=SIZES),
            measured("t5", 1441, "c0de1", only="code", same_code_as="n0"),
            measured("opt", 1441),
        ],
    }
    bundles = [
        write_bundle(folder, header(name, minutes=1440 * place, commit=stores.SHAS[place]), cells, codes=[OLD, NEW])
        for place, (name, cells) in enumerate(nights.items())
    ]
    return stores.store(folder / "store.db", bundles)


def test_compare_says_what_became_of_the_code_and_filters_by_it(open_app, store):
    table = cells_of(open_app(store, "compare")).set_index("model")
    words = table["generated code"].to_dict()
    assert words.pop("opt") == ABSENT
    assert words == {"gpt2": "2 kernels changed", "bert": "same code", "t5": "same code as n0"}
    assert table["outcome"]["t5"] == "= unchanged"
    for kind, models in {"same": {"bert", "t5"}, "unknown": {"opt"}}.items():
        assert set(cells_of(open_app(store, "compare", code=kind))["model"]) == models
    alone = open_app(store, "compare", base="none")
    assert cells_of(alone).set_index("model")["generated code"]["t5"] == "same code as n0"


def test_model_shows_the_kernels_that_differ_and_how(open_app, store):
    app = open_app(store, "model", model="huggingface/gpt2")
    said = plain(app)
    assert "2 kernels changed: 1 added, 1 changed; 1 unchanged." in said and "Sizes of" not in said
    assert "sum_2 +0.21 ms, 84 % of the loss (changed), from gpt2.py:0, gpt2.py:1 and 3 more" in said
    assert said.count("gpt2.py:22 more") == 3, "kernels that differ, that take the time, and that lose it"
    assert "1.21041%710" in said and "0.100100%0" in said, "milliseconds, share of the roof, microseconds lost"
    assert "A copy reaches 2,900 GB/s here, a product 640 TFLOP/s in" in said
    assert "XBLOCK: 64" in said and "XBLOCK: 8" in said and "mul, sum" in said
    assert "<script>" not in text_of(app), "names of a database are escaped"
    (diff,) = (one for one in app.code if one.language == "diff")
    assert "-XBLOCK = 64" in diff.value and "+XBLOCK = 8" in diff.value
    app.query_params["sources"] = "both"
    both = [one.value for one in ran(app).code if one.language == "python"]
    assert ["XBLOCK = 64" in text for text in both] == [True, False] and not any(KERNEL in text for text in both)
    app.query_params["kernel"] = "wrapper of graph 1"
    del app.query_params["sources"]
    assert "+triton_red_fused_sum_dddd" in next(one.value for one in ran(app).code if one.language == "diff")
    script = next(one.value for one in unfolded(app, "code_new").code if "async_compile" in one.value)
    assert "triton_poi_fused_add_1 = async_compile.triton('triton_poi_fused_add_1'" in script


def test_model_says_where_the_code_is_the_same_and_shows_both_sizes(open_app, store):
    said = plain(open_app(store, "model", model="huggingface/bert"))
    assert "Both sides have the same generated code (2 kernels, code c0de1)." in said
    assert "batch 8, length 64" in said and "1.10\N{MULTIPLICATION SIGN}" in said
    assert "same code as n0, not timed again" in plain(open_app(store, "model", model="huggingface/t5"))
    said = plain(open_app(store, "model", model="huggingface/opt"))
    assert "No generated code is stored of base" in said and "No generated code is stored of new" in said

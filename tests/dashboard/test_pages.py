import re
from dataclasses import replace

import pytest

from collector.vocabulary import Phase
from tests.dashboard import stores
from tests.dashboard.conftest import buttons, cells_of, plain, ran, text_of, unfolded
from tests.factories import CONFIGS, cell


def test_overview_says_in_words_and_figures_what_changed(open_app, two_nights):
    app = open_app(two_nights)
    said = plain(app)
    assert app.title[0].value == "Overview"
    latency = r"latency in 1 of 6 models \(\+2\d\.\d.%, gpt2 \w+\)"
    assert re.search(rf"New is worse than base: 1 model broke \(opt cudagraphs\), {latency}\.", said)
    assert "Better: 1 model fixed (t5 cudagraphs)." in said
    counted = re.search(r"24 cells: ([^.]*)\.", said)[1]
    assert sum(map(int, re.findall(r"\d+", re.sub(r"\(.*?\)", "", counted)))) == 24
    assert stores.LABEL in said
    headings = [heading.value for heading in unfolded(app, "averages").header]
    assert headings == ["Inference, bfloat16, cuda", "Training, amp, cuda"]
    said = plain(app)
    assert "75\u202f% 3/4" in said and "1 failed" in said
    assert re.search(r"Noise from run to run: .*latency \d\.\d", said) and "repeats" in said
    assert "none applicable" not in said
    assert not re.search("\\b0\\.00\N{MULTIPLICATION SIGN}|\\b0\\.0\u202fs", said), "what was not measured is no zero"
    body = text_of(app)
    assert body.count("<caption>") == body.count("<table>") >= 10
    assert '<th scope="col">huggingface</th>' in body and '<th scope="row">cudagraphs</th>' in body
    query = "device=cuda&amp;phase=inference&amp;dtype=bfloat16&amp;suite=timm&amp;config=default"
    assert f'href="./compare?{query}"' in body and "outcome=regressed" in body
    rates, *others = [part.partition("</table>")[0] for part in body.split("<table>") if "<caption>Pass rate" in part]
    assert "1 broke, 1 fixed" in rates and 'class="c worse"' in rates
    assert others and 'class="c better"' not in "".join(others), "nothing was fixed there"


def test_one_run_is_shown_alone_without_changes_on_every_page(open_app, tmp_path):
    store = stores.fill(tmp_path / "one.db", runs=1)
    said = plain(open_app(store))
    assert "One side alone: 24 cells, 22 of 23 measured pass, 1 fail, 1 not applicable." in said
    assert "→" not in said and "regressed" not in said
    compare = open_app(store, "compare")
    assert "One side alone" not in compare.title[0].value and "pick a base" in plain(compare)
    assert "Report, one HTML file" not in buttons(compare)
    two = open_app(store, "compare", mode="configs", **{"from": "default", "to": "cudagraphs"})
    assert "Report, one HTML file" in buttons(unfolded(two, "downloads"))
    assert cells_of(compare)["status"].tolist()[0] != "pass"
    assert "a history needs two" in plain(open_app(store, "model"))


def test_compare_puts_what_broke_first_and_then_the_largest_change(open_app, two_nights):
    app = open_app(two_nights, "compare")
    table = cells_of(app)
    assert table["outcome"].tolist()[0] == "\N{MULTIPLICATION X} broke pass → fail_to_compile"
    assert table["model"].tolist()[0] == "opt inference, huggingface, bfloat16"
    assert all(name.startswith("gpt2") for name in table["model"][1:7])
    regressed = r"\N{MULTIPLICATION X} regressed device time \+20.%"
    assert re.fullmatch(regressed, table["outcome"].tolist()[1])
    latency = table["compiled latency"].tolist()[1]
    base, new, change, low, high = (float(part) for part in re.findall(r"[-+]?\d+\.\d+", latency))
    assert 10 < low < change < high < 30
    assert new / base == pytest.approx(1 + change / 100, abs=0.01)
    assert re.fullmatch(r"[\d.]+.ms→\N{EN DASH}", table["device time"].tolist()[0])
    link = re.search(r'<th scope="row"><a href="([^"]*)" target="_self">opt</a>', text_of(app))[1]
    assert link.startswith("./model?") and "model=huggingface/opt" in link and "config=cudagraphs" in link


def test_compare_sorts_and_filters_all_rows_by_what_is_picked(open_app, two_nights):
    def models(**query):
        return cells_of(open_app(two_nights, "compare", **query))["model"].str.split().str[0].tolist()

    assert models(sort="compiled_ms")[0] == "gpt2" != models(sort="-compiled_ms")[0]
    names = models(sort="model")
    assert names == sorted(names) and len(names) == 24
    assert "sort &#39;loudness&#39;, which is not known" in text_of(open_app(two_nights, "compare", sort="loudness"))
    assert len(models(configs=["cudagraphs", "default"], config="cudagraphs")) == 8
    assert len(models(outcome=["broke", "fixed"])) == 2
    assert models(phase="training", outcome="regressed") == ["gpt2"] * 3


def test_model_explains_a_slowdown_in_the_order_of_the_questions(open_app, two_nights):
    app = open_app(two_nights, "model", model="huggingface/gpt2", config="default", kernels="beside")
    said = plain(app)
    parts = ["Regressed: device time", "Metrics", "Kernels", "Compiled beside eager", "History", "Reproduce"]
    places = [said.casefold().index(part.casefold()) for part in parts]
    assert places == sorted(places)
    assert "at::native::add" in said and "100%" in said and "70%" in said
    del app.query_params["kernels"]
    said = plain(ran(app))
    assert re.search(r"▲ \+20\.\d.%\[\+1\d\.\d, \+2\d\.\d\]regressed", said)
    assert "Noise from run to run: " in said and "repeats" in said
    assert re.search(r"triton_poi_fused_add.*?12.*?12.*?\+0\.", said)
    assert "print() &lt;b&gt;called&lt;/b&gt;: 1" in said
    assert re.search(r"\[64, 512\] float32 mul.{,40}\+0\.13.MB", said)
    assert re.search(r"guards20\.0\d\d\.0\+1.0.us", said.replace(" ", ""))
    assert "buf = &lt;b&gt;empty&lt;/b&gt;(4)" in said
    assert "Samples" in [heading.value for heading in app.header]
    assert "4 runs on new's testbed" in said
    command = "inductor-watch run --suite huggingface --model gpt2 --config default --phase inference"
    assert any(code.value.startswith(command) for code in app.code)


def test_model_shows_why_it_failed(open_app, two_nights):
    app = open_app(two_nights, "model", model="huggingface/opt", config="cudagraphs")
    assert any(fold.label.startswith("Log of new: ") for fold in app.expander)
    assert not any(code.value.startswith("Traceback") for code in app.code)
    unfolded(app, "log_new")
    (save,) = app.get("download_button")
    assert save.proto.label == "Log as text"
    codes = [code.value for code in app.code]
    assert any("exception: BackendCompilerFailed" in code and "hint: set fullgraph=False" in code for code in codes)
    assert any("torch's compiler bisector names: inductor, lowerings, <gelu>" in code for code in codes)
    assert any(code.startswith("Traceback (most recent call last)") for code in codes)
    assert "fail_to_compile" in plain(app)


def test_swapping_turns_the_comparison_around(open_app, two_nights):
    app = open_app(two_nights)
    app.button(key="swap").click()
    ran(app)
    assert (app.query_params["base"], app.query_params["new"]) == ("night-1", "night-0")
    assert "6 improved" in plain(app) and "regressed" not in plain(app).partition("24 cells")[2].partition(".")[0]


def test_a_config_of_another_setting_opens_that_setting_or_links_to_it(open_app, tmp_path):
    cells = [cell("t5", CONFIGS[0]), cell("t5", CONFIGS[1], phase=Phase.TRAINING, dtype="amp")]
    other = CONFIGS[1].name
    path = stores.store(tmp_path / "s.db", [stores.run(tmp_path, "n", which=cells)])
    query = {"model": "huggingface/t5", "config": other}
    opened = text_of(open_app(path, "model", **query))
    assert "not known here" not in opened and "another setting" not in opened
    linked = text_of(open_app(path, "model", setting="inference,bfloat16,cuda,8", **query))
    assert f"{other} is measured in another setting" in linked and "setting=training" in linked
    assert "not known here" not in linked


def test_a_slower_eager_run_asks_for_another_model_beside_the_raw_change(open_app, tmp_path):
    def slower(which):
        found = stores.measure(1441, seed=1)(which)
        if which.model != "gpt2":
            return found
        times = {name: 1.5 * found.metrics[name] for name in ("eager_ms", "compiled_ms")}
        return replace(found, metrics=found.metrics | times, samples={})

    later = {"minutes": 1440.0, "commit": stores.SHAS[1], "cells": stores.cells(), "make": slower}
    bundles = [stores.run(tmp_path, "night-0", commit=stores.SHAS[0]), stores.night(tmp_path, "night-1", **later)]
    path = stores.store(tmp_path / "store.db", [*stores.repeats(tmp_path), *bundles])
    said = " ".join(plain(open_app(path, "model", model="huggingface/gpt2", config="default")).split())
    assert re.search(r"Eager of the same processes: \S+ ms -> \S+ ms \(\+[45]\d\.\d %\): another model\? ", said)
    raw, left = re.search(r"Compiled: \+(\S+) % as measured, (\S+) % adjusted for eager\.", said).groups()
    assert float(raw) == pytest.approx(50, abs=5) and float(left) < float(raw)

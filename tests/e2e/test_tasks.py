"""The twelve tasks of an engineer who looks at the dashboard, each with the clicks that it takes from the first page.

A key press that picks or opens something counts as a click, typing does not.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from collector.vocabulary import Config
from tests.command_line import ROOT, call, tell
from tests.dashboard import stores
from tests.e2e.conftest import serving, settled, watched
from tests.factories import CUDAGRAPHS, DEFAULT, cell, header, matrix, passing, write_bundle

pytestmark = pytest.mark.slow  # `make browser` runs them

MOST = 3
_MOST_TABS = 150


class Visitor:
    """Somebody on the first page, who counts clicks."""

    def __init__(self, page, place="/") -> None:
        self.page, self.clicks = page, 0
        page.goto(place)
        settled(page)

    def click(self, locator) -> None:
        locator.first.click()
        self._did()

    def pick(self, key: str, text: str) -> None:
        """Types into a box and takes what it finds."""
        box = self.page.locator(f".st-key-{key}_widget input").first
        box.fill(text)
        box.press("Enter")
        self._did()

    def tab_to(self, locator) -> None:
        """Presses Tab until the focus is there."""
        for _ in range(_MOST_TABS):
            if locator.first.evaluate("wanted => wanted.getRootNode().activeElement === wanted"):
                return
            self.page.keyboard.press("Tab")
        pytest.fail(f"Tab does not reach {locator}")

    def open_by_keyboard(self, locator) -> None:
        self.tab_to(locator)
        self.page.keyboard.press("Enter")
        self._did()

    def link(self, name: str):
        return self.page.get_by_test_id("stMain").get_by_role("link", name=name)

    def menu(self, name: str):
        return self.page.get_by_test_id("stSidebar").get_by_role("link", name=name)

    def see(self, text: str) -> None:
        """Waits for a text: Streamlit draws what follows the heading a moment later."""
        self.page.get_by_test_id("stMain").get_by_text(text).first.wait_for()

    def _did(self) -> None:
        self.clicks += 1
        self.page.wait_for_timeout(300)
        settled(self.page)


@pytest.fixture
def visit(chromium) -> Iterator[Callable[..., Visitor]]:
    """A way to send somebody to a server, who is to come to an end within so many clicks."""
    with ExitStack() as stack:
        visitors = []

        def visit(address: str, place: str = "/") -> Visitor:
            visitors.append(Visitor(stack.enter_context(watched(chromium, base_url=address)), place))
            return visitors[-1]

        yield visit
        assert all(1 <= somebody.clicks <= MOST for somebody in visitors)


@pytest.fixture
def visitor(visit, server) -> Visitor:
    return visit(server)


def test_1_which_models_regressed_between_two_torch_versions(visit, real_server):
    visitor = visit(real_server)
    visitor.pick("base", "2.13.0")
    visitor.pick("new", "2.11.0")
    visitor.click(visitor.page.get_by_test_id("stMain").get_by_role("link", name=" regressed"))
    assert "outcome=regressed" in visitor.page.url and "base=2.13.0" in visitor.page.url
    rows = visitor.page.locator(".iw tbody tr").all_inner_texts()
    assert len(rows) > 5
    assert all("%" in text and "regressed" in text for text in rows)


def test_2_graph_partition_off_and_on_for_speech_transformer(visit, tmp_path):
    store = stores.store(tmp_path / "store.db", sorted((ROOT / "data" / "partition").glob("*.jsonl*")))
    with serving(store, tmp_path) as address:
        visitor = visit(address)
        visitor.click(visitor.menu("Compare"))
        visitor.click(visitor.page.get_by_role("radio", name="two configs"))
        visitor.see("cudagraphs+graph_partition=false against cudagraphs+graph_partition=true")
        visitor.pick("q", "speech")
        (row,) = visitor.page.locator(".iw tbody tr").all_inner_texts()
        assert row.startswith("speech_transformer")
        assert "5.608\u202fms→2.129\u202fms" in row
        assert visitor.page.locator(".iw tbody [title*='mean of 3 / 3 runs']").count()


def test_3_three_months_of_t5small_under_cudagraphs_and_the_worst_point(visit, tmp_path):
    worst = 60
    slower = {(worst, CUDAGRAPHS): 1.3, (40, DEFAULT): 1.6}
    bundles = []
    for number in range(90):
        made = [
            passing(which, minutes=1440 * number + 1, slower=slower.get((number, which.config), 1.0), seed=number)
            for which in matrix(["T5Small", "bert"], [CUDAGRAPHS, DEFAULT])
        ]
        head = header(f"night-{number}", minutes=1440 * number, commit=f"{number:040x}")
        bundles.append(write_bundle(tmp_path, head, made))
    with serving(stores.store(tmp_path / "store.db", bundles), tmp_path) as address:
        visitor = visit(address)
        visitor.click(visitor.menu("Model"))
        visitor.pick("model", "T5Small")
        visitor.see("90 runs on new's testbed")
        visitor.click(visitor.page.locator("p", has_text="Worst ").get_by_role("link"))
        assert all(part in visitor.page.url for part in ("T5Small", "config=cudagraphs", f"new=night-{worst}"))
        visitor.page.goto("/trends")
        visitor.page.locator('[data-testid="stVegaLiteChart"]').first.wait_for(state="attached")
        visitor.see("90 nights")


def test_3_a_click_at_a_point_opens_its_run(visitor):
    visitor.click(visitor.link("gpt2 cudagraphs"))
    visitor.see("5 runs on new's testbed")
    chart = visitor.page.locator('[data-testid="stVegaLiteChart"][aria-label*=" over 5 runs"]').first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    # The newest run, where gpt2 became slower, is the last of five places.
    visitor.page.mouse.click(box["x"] + box["width"] * 0.85, box["y"] + box["height"] / 2)
    visitor._did()
    visitor.click(visitor.link("Open this run"))
    assert "config=cudagraphs" in visitor.page.url and "new=night-2" in visitor.page.url


def test_4_the_kernel_that_makes_a_model_slower(visitor):
    visitor.click(visitor.link("gpt2 cudagraphs"))
    first = visitor.page.locator("table", has_text="Compiled kernels per call").locator("tbody tr").first.inner_text()
    assert first.startswith("triton_poi_fused_add") and "+" in first


def test_5_what_failed_last_night_why_with_log_and_command(visitor):
    visitor.see("BackendCompilerFailed in compile: no kernel fits")
    visitor.click(visitor.link("opt cudagraphs"))
    visitor.click(visitor.page.get_by_text("Log of new"))
    assert visitor.page.locator(".st-key-log_new pre").inner_text().startswith("Traceback")
    visitor.page.get_by_role("heading", name="Reproduce").wait_for()
    assert "opt" in visitor.page.get_by_test_id("stCode").last.inner_text()


def test_6_send_this_comparison(visitor, chromium):
    visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.click(visitor.page.get_by_role("button", name="Copy link"))
    visitor.page.get_by_text("Copied.").wait_for()
    link = visitor.page.evaluate("navigator.clipboard.readText()")
    assert "base=night-1" in link and "new=night-2" in link
    with watched(chromium) as fresh:
        fresh.goto(link)
        settled(fresh)
        assert fresh.locator(".iw-verdict").inner_text() == visitor.page.locator(".iw-verdict").inner_text()


def test_7_is_this_change_real(visitor):
    visitor.click(visitor.link("gpt2 cudagraphs"))
    row = visitor.page.locator("tr", has_text="compiled latency").first.inner_text()
    assert "measured" in row and "regressed" in row
    visitor.click(visitor.page.get_by_text("How is this decided?"))
    visitor.see("Noise from run to run")


def test_8_a_store_of_three_months(chromium, tmp_path):
    store = stores.fill(tmp_path / "store.db", 90)
    with serving(store, tmp_path) as address, watched(chromium, base_url=address) as opened:
        opened.goto("/")
        opened.get_by_test_id("stMain").get_by_text("regressed").first.wait_for(timeout=20_000)
        assert opened.get_by_test_id("stException").count() == 0
        opened.goto("/trends")
        opened.locator('[data-testid="stVegaLiteChart"]').first.wait_for(state="attached")
        assert "90 nights" in opened.get_by_test_id("stMain").inner_text()


NAMES = [
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>",
    "a | b `c` $x^2$ **d** _e_ :smile: [f](javascript:window.hacked=1)",
    "q?base=none&new=x#y /../ % + \"quoted\" 'twice'",
    "\N{GRINNING FACE} \N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET} " + "long " * 55 + "end",
]


@pytest.mark.parametrize("name", NAMES, ids=["html", "markdown", "address", "long"])
def test_8_hostile_names_are_shown_as_they_are_and_their_links_work(chromium, tmp_path, name):
    bundles, cells = [], [cell(name), cell(name, Config(overrides={"x": name}))]
    for number, sha in enumerate(stores.SHAS[:2]):
        made = [passing(which, minutes=60 * number + 1, slower=1 + 2 * number) for which in cells]
        names = {"branch": name, "label": name, "commit_title": name, "commit": sha}
        bundles.append(write_bundle(tmp_path, header(f"night-{number}", minutes=60 * number, **names), made))
    store = stores.store(tmp_path / "store.db", bundles)
    opened_records = call("regressions", "open", "night-0", "night-1", "--db", store, folder=tmp_path)
    assert opened_records.returncode == 0, tell(opened_records)
    with serving(store, tmp_path) as address, watched(chromium, base_url=address) as opened:
        for place in ("trends", "regressions", "runs", "", "compare"):
            opened.goto(f"/{place}")
            settled(opened)
            assert opened.get_by_test_id("stException").count() == 0
            if place == "regressions":
                record = opened.locator(".iw tbody th", has_text=name[:40]).first.inner_text()
                assert " ".join(name.split()) in " ".join(record.split())
            if place == "trends":  # a script that breaks in a chart fails `watched`
                opened.locator('[data-testid="stVegaLiteChart"] .marks').first.wait_for()
        link = opened.locator(".iw tbody a", has_text=name[:40]).first
        assert " ".join(link.inner_text().split()) == " ".join(name.split())
        link.click()
        opened.locator("h1").wait_for()
        opened.wait_for_function("document.querySelector('h1').innerText !== 'Compare'")
        settled(opened)
        assert " ".join(opened.locator("h1").first.inner_text().split()) == " ".join(name.split())
        assert opened.evaluate("window.hacked === undefined")


def test_9_keyboard_only(visitor):
    visitor.open_by_keyboard(visitor.link("6 regressed"))
    visitor.open_by_keyboard(visitor.page.locator(".iw tbody th a"))
    assert visitor.page.locator("h1").inner_text() == "gpt2"
    fold = visitor.page.locator("summary", has_text="How is this decided?")
    visitor.open_by_keyboard(fold)
    visitor.see("Noise from run to run")


@pytest.mark.parametrize("name", ["Compare", "Model", "Commit", "Trends", "Regressions", "Runs", "About the numbers"])
def test_9_every_page_opens_by_keyboard_and_tab_gets_through_it(visitor, name):
    visitor.open_by_keyboard(visitor.menu(name))
    visitor.page.wait_for_function("document.querySelector('[data-testid=stMain] h1') !== null")
    visitor.tab_to(visitor.page.get_by_role("button", name="Copy link"))


@pytest.fixture(scope="module")
def nights_server(tmp_path_factory) -> Iterator[str]:
    """The dashboard on the nights of two commits on GPUs that came with the checkout."""
    folder = tmp_path_factory.mktemp("nights")
    store = stores.shipped(folder / "store.db")
    with serving(store, folder) as address:
        yield address


def test_10_which_models_use_more_memory(visit, nights_server):
    visitor = visit(nights_server)
    visitor.click(visitor.page.locator("li", has_text="memory:").get_by_role("link", name="10 regressed"))
    rows = visitor.page.locator(".iw tbody tr").all_inner_texts()
    assert len(rows) == 10 and rows[0].split()[0] == "convnextv2_nano.fcmae_ft_in22k_in1k"
    assert {"mobilevit_s", "nfnet_l0"} <= {row.split()[0] for row in rows}
    assert "735\u202fMB→1.58\u202fGB" in rows[0] and "+115.5" in rows[0]


def test_11_which_models_compile_longer_and_in_which_pass(visit, real_server):
    visitor = visit(real_server, "/?base=2.13.0&new=2.11.0")
    visitor.click(visitor.page.locator("li", has_text="compile:").get_by_role("link", name="10 regressed"))
    assert visitor.page.locator(".iw tbody tr").count() == 10
    visitor.click(visitor.page.locator(".iw tbody th a"))
    visitor.see("Compile time by pass")
    inductor = visitor.page.get_by_text("inductor", exact=True)
    (row,) = visitor.page.locator("tr", has=inductor).all_inner_texts()
    assert "+7.29" in row and "regressed" in row


def test_12_what_a_commit_changed(visit, nights_server):
    visitor = visit(nights_server)
    visitor.click(visitor.link("[inductor] Comment 8 in lowering.py"))
    assert visitor.page.locator("h1").inner_text() == "Commit"
    visitor.see("Fused softmax kernels: 16 changes")
    visitor.see("Peak memory: 8 changes")

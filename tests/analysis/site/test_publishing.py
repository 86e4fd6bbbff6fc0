"""The published site: its links lead somewhere, it says what a comparison says, and what did not change is not written."""

from datetime import UTC, datetime
from html.parser import HTMLParser
from json import loads
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

from analysis.compare.compare_sides import compare_named
from analysis.site.publishing import publish
from analysis.site.site_data import SiteFolderError, file_of
from db.engine import open_store
from db.regression_records import Finding, open_regression
from tests.dashboard import stores
from tests.dashboard.test_generated_code import store as coded  # noqa: F401 -- a fixture
from tests.factories import CUDAGRAPHS, DEFAULT, cell

#: Few cells: each page draws its charts.
CELLS = [cell("gpt2", DEFAULT), cell("gpt2", CUDAGRAPHS), cell("opt", CUDAGRAPHS)]
ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Three nights, the last of a commit with a hostile title, and a record of what it made slower.

    One commit of another branch was measured twice before all else, so that the noise is known.
    """
    folder = tmp_path_factory.mktemp("nights")
    nights = stores.repeats(folder, CELLS)
    nights += [stores.run(folder, f"night-{at}", at, which=CELLS, seed=at, commit=stores.SHAS[at]) for at in range(2)]
    worse = {"slower": ("gpt2",), "failing_models": ("opt",), "commit_title": stores.HOSTILE, "seed": 2}
    nights.append(stores.run(folder, "night-2", 2, which=CELLS, commit=stores.SHAS[2], **worse))
    engine = open_store(stores.store(folder / "store.db", nights), write=True)
    finding = Finding(cell("gpt2").cell_id, "night-1", "night-2", "regressed", "compiled_ms", 10.0, 12.0)
    open_regression(engine, finding, at=datetime(2026, 8, 2, tzinfo=UTC), author="ann", text=stores.HOSTILE)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def site(filled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    publish(filled, folder, address="https://watch.example/sub")
    return folder


class Links(HTMLParser):
    """What a page leads to and loads."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("href", "src", "data-spec")]


def test_every_link_of_every_page_leads_to_a_file_of_the_site(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    lost = []
    for page in pages:
        for link in map(urlsplit, Links(page.read_text(encoding="utf-8")).found):
            if link.scheme in ("https", "data") or not link.path:
                continue
            assert not link.scheme and not link.path.startswith("/"), "all addresses are relative"
            target = page.parent / unquote(link.path)
            lost += [] if (target / "index.html" if target.is_dir() else target).is_file() else [(page, link)]
    assert lost == []


def test_the_verdicts_of_a_pair_are_those_of_the_comparison(filled, site):
    found = loads((site / "data/pairs/night-1..night-2.json").read_text(encoding="utf-8"))
    compared = compare_named(filled, "night-1", "night-2")
    assert {key: one["o"] for key, one in found["cells"].items()} == {
        one.cell.cell_id: one.outcome.value for one in compared.cells
    }
    index = loads((site / "data/site.json").read_text(encoding="utf-8"))
    memory = [one["f"][index["dimensions"]["memory"]] for one in found["cells"].values() if "f" in one]
    counts = {word: memory.count(letter) for letter, word in index["verdicts"].items() if letter in memory}
    assert counts == compared.dimensions()["memory"]
    assert "gpt2" in found["sentence"] and found["sentence"] in (site / "feed.xml").read_text(encoding="utf-8")
    page = (site / "model/huggingface/gpt2/index.html").read_text(encoding="utf-8")
    assert "Regressed: device time" in page and "triton_poi_fused_add" in page


def test_hostile_texts_are_texts_everywhere(site):
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert any("&lt;script&gt;alert(1)" in text for text in texts.values())
    assert [path for path, text in texts.items() if "<script>alert" in text] == []
    # The feed has absolute links to what got worse and to records.
    feed = ElementTree.parse(site / "feed.xml").getroot()  # noqa: S314 -- what we have just written
    links = [entry.find(f"{ATOM}link").get("href") for entry in feed.findall(f"{ATOM}entry")]
    assert "https://watch.example/sub/compare/?base=night-1&new=night-2" in links
    assert any(link.startswith("https://watch.example/sub/regressions/") for link in links)


def test_only_what_changed_is_written_and_what_is_gone_is_removed(tmp_path):
    broken = {"which": CELLS[1:2], "failing_models": ("gpt2",), "commit": stores.SHAS[1]}
    nights = [stores.run(tmp_path, "oldest", which=CELLS), stores.run(tmp_path, "night-0", 1, which=CELLS[1:2])]
    path = stores.store(tmp_path / "store.db", [*nights, stores.run(tmp_path, "night-1", 2, **broken)])
    engine, folder = open_store(path, write=False), tmp_path / "site"
    first = publish(engine, folder, nights=3)
    (folder / "CNAME").write_text("watch.example")
    again = publish(engine, folder, nights=3)
    assert (again.written, again.removed, again.kept) == (0, 0, first.written)
    night = folder / "data/nights/night-1.json"
    was = night.stat().st_mtime_ns
    stores.store(path, [stores.run(tmp_path, "night-2", 3, which=CELLS[1:2], commit=stores.SHAS[2])])
    later = publish(engine, folder, nights=3)
    assert 0 < later.written < first.written and later.removed
    assert night.stat().st_mtime_ns == was and (folder / "CNAME").is_file()
    assert "fail_to_compile" in (folder / f"change/night-0..night-1/{CELLS[1].cell_id}.html").read_text()
    assert not (folder / "data/nights/oldest.json").exists()
    engine.dispose()


def test_a_folder_with_other_files_is_left_alone(filled, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SiteFolderError, match="holds files and no published site"):
        publish(filled, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_model_shows_what_differs_in_its_code(coded, tmp_path):  # noqa: F811
    publish(open_store(coded, write=False), tmp_path / "site")
    page = (tmp_path / "site/model/huggingface/gpt2/index.html").read_text(encoding="utf-8")
    assert '<span class="went">-XBLOCK = 64</span>' in page and '<span class="came">+XBLOCK = 8</span>' in page
    assert "2 kernels changed: 1 added, 1 changed; 1 unchanged." in page


def test_names_of_files_tell_names_apart():
    names = ["a/b", "a-b", "..", "night 1", "night-1", "x" * 300, "x" * 301, "\N{SNOWMAN}", ""]
    files = [file_of(name) for name in names]
    assert len(set(files)) == len(names) and file_of("night-1") == "night-1"
    assert not any(file.startswith(".") or "/" in file or len(file) > 80 for file in files)

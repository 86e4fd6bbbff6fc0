"""A report of synthetic nights: what it says, that nothing in it can be taken for markup, and that it fits."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from analysis.reports.html_report import html
from analysis.reports.markdown_report import SUMMARY_BYTES, code, cut, fence, markdown, prose
from jobs.output.terminal import one_line
from tests.analysis.compare.test_cell_verdicts import MODELS
from tests.analysis.reports.conftest import DASHBOARD, HOSTILE, call, report_of


def test_the_verdict_is_one_sentence_and_what_got_worse_comes_first(nights):
    found = report_of(nights)
    assert found.sentence == (
        "New is worse than base: 1 model broke (model05), latency in 1 of 24 models (+10.0 %, model03), graphs in 1 (model03). "
        "Better: 1 model fixed (model06), latency in 1 of 24 models (-10.2 %, model02)."
    )
    assert (found.exit_code, found.reason) == (1, "1 broke, 1 regressed")
    verdicts = [f"{row.finding.verdict} {row.finding.dimension}" for row in found.rows]
    worse = ["regressed graphs", "regressed latency", "broke correctness"]
    assert verdicts == [*worse, "improved latency", "fixed correctness"]
    worst = found.rows[1]
    assert MODELS[3] in worst.cell
    judged = worst.finding.judged
    assert judged.low < judged.adjusted < judged.high
    assert judged.adjusted == pytest.approx(0.1, abs=0.01)
    assert worst.repro.startswith(f"inductor-watch run --suite huggingface --model {MODELS[3]} --config default")


def test_an_unmeasured_pair_is_said_to_be_that(nights):
    empty = report_of(nights, "r12", "r13")
    assert empty.sentence == "Nothing can be said of new against base: no cell was measured on both sides."
    assert (empty.exit_code, empty.again.missing, empty.again.cells) == (3, 24, ())
    assert markdown(empty).startswith("## inductor-watch: nothing to judge\n")
    assert call(nights, "r12", "apart").exit_code == 3


def test_a_regression_has_its_evidence_and_a_broken_cell_its_error(nights):
    regressed, _, broke = report_of(nights).rows[:3]
    assert regressed.evidence == (
        "graph breaks: 0 -> 2",
        "new reason of a graph break: call to print: 2",
        "kernel triton_poi_new: none -> 1 x, 0.600 ms (+0.600 ms, 100 % of the loss), from bert.py:9",
        "kernels: 61 % -> 55 % of the roof that a plain copy and product set",
        "new: pass (checked by cosine)",
    )
    assert broke.evidence[0] == "compile: BackendCompilerFailed: no kernel fits (set fullgraph=False)"
    assert (broke.compared.base.status, broke.compared.new.status) == ("pass", "oom")
    told = {cell["model"]: cell["evidence"] for cell in report_of(nights).to_json()["cells"]}
    assert (told[MODELS[3]], told[MODELS[0]]) == (list(regressed.evidence), [])
    text = markdown(report_of(nights))
    assert text.index("### Regressed (2)") < text.index("kernel triton") < text.index("### Broke (1)")
    assert text.index("### Broke (1)") < text.index("Improved (1)") < text.index("### Suites")
    assert "| 96% 23/24 -> 96% 23/24 |" in text


LINES = ["```sh", "1. x", "# h", "- x", "www.evil.example", "\x1b[2J\u202e"]


def test_no_text_means_anything_in_markdown_or_ends_its_fence():
    for text in (*HOSTILE, *LINES):
        shown = prose(text)
        assert not re.search(r"[<|`*\[\]\\@#!~]|^[-+>]|^\d+[.)]|://|www\.", re.sub(r"&#\d+;", "", shown))
        assert code(text).count("<") == 2
        assert "@" not in re.sub(r"&#\d+;", "", code(text))
    assert fence(["a ``` b ```` c"], "sh") == "`````sh\na ``` b ```` c\n`````"
    assert prose("by @octocat, see #12") == "by &#64;&#8203;octocat, see &#35;&#8203;12"
    assert fence(["x\x1b\r", "y"]) == "```\nx\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\ny\n```"


def test_a_parser_of_markdown_finds_our_structure_and_their_words(hostile):
    text = markdown(report_of(hostile, "one", "two", DASHBOARD))
    assert "https://dash.example/iw/model?base=one&new=two&model=huggingface/%40octocat+fixes+%231" in text
    outside = re.sub(r"(?ms)^(`{3,})sh\n.*?^\1$", "", text)
    assert not re.search(r"@octocat|@team|\]\(https://evil", outside)
    page = Page(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    ours = {"h2", "h3", "p", "ul", "li", "strong", "a", "code", "pre", "details", "summary"}
    assert set(page.tags) <= ours | {"table", "thead", "tbody", "tr", "th", "td"}
    assert all(value.startswith(DASHBOARD) for tag, name, value in page.attributes if name == "href")
    assert {name for _, name, _ in page.attributes} <= {"href", "class", "style"}
    for name in HOSTILE:
        assert any(words.startswith(f"huggingface/{name} inference") for words in page.words)


@settings(max_examples=12)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
@example("*a*_b_`c`")
@example(" - x")
@example("&lt;b&gt;")
def test_whatever_a_name_is_it_is_one_cell_and_reads_as_itself(text):
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render
    page = Page(rendered(f"| a | b |\n| --- | --- |\n| {code(text)} | {prose(text)} |\n"))
    assert page.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "code", "td"]
    shown = [words for words in "".join(page.words).split("\n") if words][2:]
    flat = one_line(text, 300).strip()
    assert "".join(shown).replace("\u200b", "").replace(" ", "") == (flat + flat).replace("\u200b", "").replace(" ", "")
    page = Page(rendered(f"- {prose(text)}\n- {code(text)}\n"))
    assert page.tags in (["ul", "li", "li", "code"], ["ul", "li", "code"])


class Page(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.words, self.stack = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in ("meta", "br", "line"):
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_asks_nobody_for_anything_and_is_well_formed(nights, hostile):
    for text in (html(report_of(nights, dashboard=DASHBOARD)), html(report_of(hostile, "one", "two"))):
        page = Page(text)
        assert page.stack == []
        assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
        names = {name for _, name, _ in page.attributes}
        assert not {name for name in names if name in ("src", "srcset", "data", "action") or name.startswith("on")}
        assert all(url.startswith(DASHBOARD) for tag, name, url in page.attributes if name == "href")
        assert "url(" not in text and "@import" not in text and "default-src 'none'" in text
    words = "\n".join(page.words)  # of the hostile one
    assert [name for name in (*HOSTILE, "<img src=x onerror=alert(1)>") if name not in words] == []


def test_a_report_too_long_has_fewer_rows_and_a_cut_closes_its_fence(nights):
    found = report_of(nights, "r12", "r13")
    whole = markdown(found)
    short = markdown(found, limit=len(whole.encode()) - 1)
    assert len(short.encode()) < len(whole.encode())
    assert "... and 4 more, which `--format json` has" in short
    assert "... and" not in whole
    # What fits in no other way is cut with a sentence.
    for limit in (900, 2000):
        text = markdown(report_of(nights), limit=limit)
        assert len(text.encode()) <= limit
        assert "This report was cut here to fit" in text
        assert text.count("<details>") == text.count("</details>")
        assert len(re.findall(r"(?m)^```", text)) % 2 == 0
    # A cut closes the fence that was open.
    text = "<details><summary>x</summary>\n\n````sh\n```\n" + "line\n" * 100 + "````\n</details>"
    lines = cut(text, 400).splitlines()
    assert lines.index("````") < lines.index("</details>")
    assert cut("short", 400) == "short"


def test_the_summary_is_appended_within_its_limit(nights, tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    assert call(nights, "r11", "r12", "--github-summary", GITHUB_STEP_SUMMARY=str(summary)).exit_code == 0
    text = summary.read_text()
    assert text.startswith("before\n\n## inductor-watch: 1 regressed, 1 broke\n")
    summary.write_bytes(b"x" * (SUMMARY_BYTES - 3000))
    assert call(nights, "r11", "r12", "--github-summary", GITHUB_STEP_SUMMARY=str(summary)).exit_code == 0
    assert SUMMARY_BYTES - 2900 < summary.stat().st_size <= SUMMARY_BYTES
    assert "was cut here to fit" in summary.read_text()[-400:]
    done = call(nights, "r11", "r12", "--github-summary", GITHUB_STEP_SUMMARY=str(summary))
    assert (done.exit_code, "summary is full" in done.output) == (2, True)
    assert call(nights, "r11", "r12", "--github-summary", GITHUB_STEP_SUMMARY="").exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((["--dashboard-url", url], "no address") for url in ("javascript:alert(1)", "https://x/?q=1", "https://[")),
        (["--comment", "nonsense"], "nonsense"),
        (["--comment", "o/r#1"], "GITHUB_TOKEN"),
    ],
)
def test_a_request_that_cannot_be_served_writes_nothing(nights, tmp_path, words, said):
    out = tmp_path / "x.md"
    done = call(nights, "r11", "r12", "--out", str(out), *words, GITHUB_TOKEN="")
    assert (done.exit_code, said in done.output, out.exists()) == (2, True, False)

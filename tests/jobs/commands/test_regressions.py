"""Records from the command line: opened, shown, moved, noted, published as issues; refused in one line where they cannot be."""

from __future__ import annotations

import json
import shutil
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from db.engine import open_store
from db.store_errors import RecordError
from jobs.cli import app
from tests.analysis.compare.test_cell_verdicts import MODELS, make_run
from tests.jobs.github_server import TOKEN, Failure

SLOW, BROKEN = (f"huggingface/{MODELS[at]} inference bfloat16 cuda bs8 default" for at in (4, 7))
ENVIRON = {"INDUCTOR_WATCH_AUTHOR": "ann", "GITHUB_ACTOR": ""}


@pytest.fixture
def database(nights_with_losses, tmp_path):
    return str(shutil.copy(nights_with_losses, tmp_path / "store.db"))


def call(database, *words, **environ):
    return CliRunner().invoke(app, ["regressions", *words, "--db", database], env={**ENVIRON, **environ})


def records(database, *words):
    return json.loads(call(database, "list", "--json", *words).output)


def one(database, kind="slower"):
    (found,) = [item for item in records(database, "--all") if item["kind"] == kind]
    return found


def refused(database, *words, said):
    """A record error: one line, and nothing changed."""
    before = records(database, "--all")
    done = call(database, *words)
    assert isinstance(done.exception, RecordError), done.output
    assert "\n" not in str(done.exception)
    assert said in str(done.exception)
    assert records(database, "--all") == before


def test_what_regressed_and_broke_is_recorded_once_with_its_base(database):
    first = call(database, "open", "r11", "r12", "--note", "seen in the night")
    assert first.exit_code == 0
    assert [line.split("  ")[1] for line in first.output.splitlines()] == ["opened", "opened"]
    again = call(database, "open", "r11", "r12", "--json")
    assert json.loads(again.output)["opened"] == []
    assert "nothing regressed or broke" in call(database, "open", "r09", "r10").output
    slow, broke = one(database), one(database, "broke")
    told = {"cell": SLOW, "metric": "compiled_ms", "state": "new", "base_run": "r11", "onset_run": "r12"}
    assert slow.items() >= told.items()
    assert slow["new_value"] / slow["base_value"] == pytest.approx(1.1, rel=0.02)
    assert broke.items() >= {"cell": BROKEN, "metric": "", "base_value": None}.items()
    assert slow["events"][0].items() >= {"author": "ann", "text": "seen in the night"}.items()


def test_a_record_is_listed_shown_and_set_and_steers_no_terminal(recorded):
    name = one(recorded)["regression_id"]
    assert call(recorded, "ack", name[:5], "--owner", "carl", "--note", "mine").exit_code == 0
    call(recorded, "note", name, "\x1b[2Jgone\nnext", INDUCTOR_WATCH_AUTHOR="", GITHUB_ACTOR="\u202eevil")
    shown = call(recorded, "show", name).output
    for said in (
        *("state   acknowledged", f"cell    {SLOW}", "run r11 (pinned)", "run r12", "owner   carl"),
        *("ann: new: regressed", "ann: acknowledged: mine", "commits import --git PATH", "evil"),
        f"inductor-watch run --suite huggingface --model {MODELS[4]}",
    ):
        assert said in shown
    assert not {"\x1b", "\u202e"} & set(shown)
    assert len([line for line in shown.splitlines() if "gone" in line and "next" in line]) == 1
    told = json.loads(call(recorded, "show", name, "--json").output)
    assert [event["to_state"] for event in told["events"]][:2] == ["new", "acknowledged"]
    assert told["blame"]["distance"] is None
    changes = {"owner": "eve", "link": "https://example.org/1"}
    assert call(recorded, "set", name, "--owner", "eve", "--link", changes["link"]).exit_code == 0
    assert one(recorded).items() >= changes.items()
    assert SLOW in call(recorded, "list").output
    assert call(recorded, "close", name, "--as", "expected", "--note", "known").output == f"{name}  expected\n"
    assert SLOW not in call(recorded, "list").output
    assert SLOW in call(recorded, "list", "--all").output
    assert "no open records" in call(recorded, "list", "--branch", "none").output


def test_what_cannot_be_is_refused_and_nothing_changes(recorded):
    name = one(recorded)["regression_id"]
    for words, said in [
        (("reopen", name), "is new: that can become confirmed, acknowledged, expected, false_alarm, fixed"),
        (("note", "zzzz", "text"), "no regression 'zzzz'"),
        (("set", name, "--link", "javascript:alert(1)"), "https://"),
        (("open", "r11", "r12", "--cell", SLOW.replace("04", "05")), "did not get worse"),
        (("open", "r11", "r12", "--cell", "nonsense"), "these sides have no cell"),
    ]:
        refused(recorded, *words, said=said)
    for words in (("close", name, "--as", "wontfix"), ("close", name), ("set", name)):
        assert call(recorded, *words).exit_code == 2


def test_several_records_move_together_or_not_at_all(recorded):
    names = [item["regression_id"] for item in records(recorded)]
    call(recorded, "close", names[0], "--as", "fixed")
    refused(recorded, "confirm", *names, said="is fixed: that can become returned, acknowledged, not confirmed")
    assert call(recorded, "ack", *names, names[0][:6]).exit_code == 0
    assert {item["state"] for item in records(recorded)} == {"acknowledged"}


def test_detect_finds_and_records_what_a_history_shows(database, tmp_path):
    store = open_store(database, write=True)
    for number in range(13, 19):
        make_run(store, tmp_path, number, slower={MODELS[4]: {"compiled_ms": 1.1}})
    store.dispose()
    found = json.loads(call(database, "detect", "--json", "--author", "nightly").output)
    (slow,) = [item for item in records(database) if item["cell"] == SLOW]
    assert slow["regression_id"] in found["opened"]
    assert (slow["onset_run"], slow["events"][0]["author"]) == ("r12", "nightly")
    assert "records: 0 opened" in call(database, "detect").output


def publish(database, server, *words):
    environ = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": server.url}
    done = call(database, "publish", "--repo", "o/r", *words, **environ)
    assert TOKEN not in done.output + repr(done.exception)
    return done


def test_an_alert_gets_one_issue_which_is_kept_up_to_date_and_closed(recorded, server):
    done = publish(recorded, server, "--dashboard-url", "https://dash.example")
    assert done.output == "issue opened: https://github.com/o/r/issues/1\n"
    (issue,) = server.issues
    assert issue["labels"] == ["inductor-watch"]
    assert issue["title"] == f"main at 0000000000: broke, {BROKEN} and 1 more"
    link = "https://dash.example/model?base=r11&new=r12"
    for said in (MODELS[4], MODELS[7], "slower", " ms, measured +", "inductor-watch run --suite", link):
        assert said in issue["body"]
    assert {item["link"] for item in records(recorded)} == {"https://github.com/o/r/issues/1"}
    assert publish(recorded, server, "--dashboard-url", "https://dash.example").output.startswith("issue unchanged")
    name = one(recorded)["regression_id"]
    call(recorded, "close", name, "--as", "fixed")
    assert publish(recorded, server).output.startswith("issue updated")
    call(recorded, "close", one(recorded, "broke")["regression_id"], "--as", "expected")
    assert publish(recorded, server).output.startswith("issue closed")
    assert (len(server.issues), server.issues[0]["state"]) == (1, "closed")
    assert publish(recorded, server).output.startswith("issue unchanged")
    call(recorded, "reopen", name)
    assert publish(recorded, server).output.startswith("issue reopened")
    assert server.issues[0]["state"] == "open"


def test_a_lost_answer_makes_no_second_issue_and_a_closed_one_stays(recorded, server):
    server.failures.append(Failure("POST", 502, is_done=True))
    assert publish(recorded, server).exit_code == 4
    assert publish(recorded, server).output == "issue unchanged: https://github.com/o/r/issues/1\n"
    assert len(server.issues) == 1
    server.issues[0]["state"] = "closed"  # by a person
    call(recorded, "ack", one(recorded)["regression_id"])
    assert publish(recorded, server).output.startswith("issue updated")
    assert server.issues[0]["state"] == "closed"


def test_a_dry_run_writes_nothing_and_needs_no_token(recorded):
    done = call(recorded, "publish", "--repo", "o/r", "--dry-run", GITHUB_TOKEN="")
    assert done.exit_code == 0
    assert "<!-- inductor-watch alert " in done.output
    assert call(recorded, "publish", "--repo", "o/r", GITHUB_TOKEN="").exit_code == 2
    assert call(recorded, "publish", "--repo", "nonsense", "--dry-run").exit_code == 2


ATOM = "{http://www.w3.org/2005/Atom}"


def test_a_feed_has_an_entry_a_record_the_one_that_changed_last_first(recorded, tmp_path):
    record, out = one(recorded), tmp_path / "feed.xml"
    assert call(recorded, "ack", record["regression_id"], "--note", "looking <b>&\x07").exit_code == 0
    assert call(recorded, "feed", "--out", str(out), "--dashboard-url", "https://watch.example/d").exit_code == 0
    feed = ElementTree.fromstring(out.read_text(encoding="utf-8"))  # noqa: S314 -- what we have just written
    entry, _ = feed.findall(f"{ATOM}entry")
    assert entry.findtext(f"{ATOM}title").startswith("acknowledged: huggingface/")
    assert "looking <b>&" in entry.findtext(f"{ATOM}content")
    assert entry.find(f"{ATOM}author/{ATOM}name").text == "ann"
    link = entry.find(f"{ATOM}link").attrib["href"]
    assert link == f"https://watch.example/d/regressions?closed=1&record={record['regression_id']}"
    assert call(recorded, "feed", "--out", str(out), "--dashboard-url", "javascript:alert(1)").exit_code == 2

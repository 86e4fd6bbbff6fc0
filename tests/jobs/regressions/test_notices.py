"""New regressions told to a real web server and a real mail server: once, again after a failure, and without secrets."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess

import pytest
from click.testing import CliRunner

from jobs.cli import app
from tests.analysis.compare.test_cell_verdicts import MODELS
from tests.jobs.regressions.receivers import MailReceiver, WebReceiver, running

SECRET = "T0SECRET0xyz"
MAILS = {"MAIL_FROM": "watch@example.org", "MAIL_TO": "ann@example.org, ben@example.org"}
VARIABLES = ("SLACK_URL", "WEBHOOK_URL", "WEBHOOK_TOKEN", "SMTP_URL", "MAIL_FROM", "MAIL_TO", "DASHBOARD_URL")
NONE = {f"INDUCTOR_WATCH_{name}": "" for name in VARIABLES} | {"INDUCTOR_WATCH_AUTHOR": "ann"}


@pytest.fixture
def web():
    with running(WebReceiver()) as server:
        yield server


@pytest.fixture
def mail():
    with running(MailReceiver()) as server:
        yield server


def regressions(database, *words, **environ):
    variables = {f"INDUCTOR_WATCH_{name}": value for name, value in environ.items()}
    return CliRunner().invoke(app, ["regressions", *words, "--db", database], env={**NONE, **variables})


def notify(database, *words, **environ):
    """Sends; whatever came of it shows no secret."""
    done = regressions(database, "notify", *words, **environ)
    shown = done.output + repr(done.exception) + regressions(database, "list", "--all", "--json").output
    assert SECRET not in shown
    return done


def test_each_channel_is_told_once_with_the_reports_first_line_and_links(recorded, web, mail):
    dry = notify(recorded, "--dry-run")
    assert dry.exit_code == 0 and dry.output.startswith("2 new regressions on main\n")
    assert notify(recorded, "--dry-run", "--branch", "none").output == "nothing new\n"
    assert notify(recorded, "r11").exit_code == 2
    channels = {
        "SLACK_URL": f"http://{web.address}/services/{SECRET}",
        "WEBHOOK_URL": f"http://{web.address}/hook",
        "WEBHOOK_TOKEN": SECRET,
        "SMTP_URL": f"smtp://127.0.0.1:{mail.port}",
        **MAILS,
    }
    words = ("r11", "r12", "--dashboard-url", "https://dash.example")
    done = notify(recorded, *words, **channels)
    assert done.output.splitlines() == [f"{name}: 2 new regressions on main" for name in ("slack", "webhook", "e-mail")]
    (slack, _, said), (hook, headers, document) = web.posts
    assert (slack, hook, headers["Authorization"]) == (f"/services/{SECRET}", "/hook", f"Bearer {SECRET}")
    assert "https://dash.example/model?base=r11&amp;new=r12" in said["text"]
    text = document["text"]
    assert "New is worse than base: 1 model broke (model07), latency in 1 of 24 models (+" in text
    assert "https://dash.example/compare?base=r11&new=r12" in text
    assert f"- slower: huggingface/{MODELS[4]} inference" in text and f"- broke: huggingface/{MODELS[7]}" in text
    assert {item["kind"] for item in document["regressions"]} == {"slower", "broke"}
    (message,) = mail.messages
    assert message["Subject"] == "inductor-watch: 2 new regressions on main"
    assert message.get_content().replace("\r\n", "\n") == text and len(mail.receivers) == 2
    again = notify(recorded, *words, **channels)
    assert again.output.splitlines() == [f"{name}: nothing new" for name in ("slack", "webhook", "e-mail")]
    assert (len(web.posts), len(mail.messages)) == (2, 1)


def test_a_failed_delivery_is_one_line_and_is_repeated_by_the_next_call(recorded, web, mail):
    mail.refuses = f"554 5.7.1 {SECRET}"
    channels = {"WEBHOOK_URL": f"http://{web.address}/hook", "SMTP_URL": f"smtp://127.0.0.1:{mail.port}", **MAILS}
    done = notify(recorded, **channels)
    assert (done.exit_code, done.stdout) == (4, "webhook: 2 new regressions on main\n")
    failed = "e-mail: 127.0.0.1 answered 554 (SMTPDataError): not delivered, the next call tells it"
    assert done.stderr == f"inductor-watch: {failed}\n"
    mail.refuses = ""
    assert notify(recorded, **channels).output == "webhook: nothing new\ne-mail: 2 new regressions on main\n"
    web.status = 503
    slack = {"SLACK_URL": f"http://{web.address}/{SECRET}"}
    assert "slack: 127.0.0.1 answered 503" in notify(recorded, **slack).stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/{SECRET}"
        assert "does not answer (ConnectError)" in notify(recorded, SLACK_URL=nobody).stderr


def test_an_answered_record_is_not_told_and_a_returned_one_is_told_again(recorded, web):
    listed = json.loads(regressions(recorded, "list", "--json").output)
    names = {item["kind"]: item["regression_id"] for item in listed}
    assert regressions(recorded, "ack", names["broke"]).exit_code == 0
    hook = {"WEBHOOK_URL": f"http://{web.address}/hook"}
    assert notify(recorded, **hook).output == "webhook: 1 new regression on main\n"
    regressions(recorded, "note", names["slower"], "looking")
    assert notify(recorded, **hook).output == "webhook: nothing new\n"
    regressions(recorded, "close", names["slower"], "--as", "fixed")
    regressions(recorded, "reopen", names["slower"])
    assert notify(recorded, **hook).output == "webhook: 1 new regression on main\n"
    assert "it was fixed before" in web.posts[-1][2]["text"]


def test_a_password_is_sent_to_a_server_with_tls_alone(recorded, mail, tmp_path):
    done = notify(recorded, SMTP_URL=f"smtp://ann:{SECRET}@127.0.0.1:{mail.port}", **MAILS)
    assert done.exit_code == 4 and "offers no STARTTLS" in done.stderr
    assert (mail.login, mail.messages) == ("", [])
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with running(MailReceiver(tls)) as safe:
        address = f"smtps://ann:{SECRET}%40@localhost:{safe.port}"
        assert "SSLCertVerificationError" in notify(recorded, SMTP_URL=address, **MAILS).stderr
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(certificate))
            assert notify(recorded, SMTP_URL=address, **MAILS).output == "e-mail: 2 new regressions on main\n"
        assert safe.login == f"\0ann\0{SECRET}@"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "no channel is set"),
        ({"SLACK_URL": f"http://hooks.example/{SECRET}"}, "INDUCTOR_WATCH_SLACK_URL must be an https:// address"),
        ({"WEBHOOK_URL": "https://h.example", "WEBHOOK_TOKEN": f"{SECRET} x"}, "INDUCTOR_WATCH_WEBHOOK_TOKEN holds"),
        ({"SMTP_URL": f"mail://{SECRET}@h.example"}, "INDUCTOR_WATCH_SMTP_URL must be smtp://"),
        ({"SMTP_URL": "smtp://h.example", "MAIL_FROM": "a@b.c\nBcc: d@e.f", "MAIL_TO": "x@y.z"}, "MAIL_FROM must hold"),
    ],
)
def test_a_channel_that_is_set_up_wrongly_is_refused_by_name(recorded, environ, said):
    done = notify(recorded, **environ)
    assert done.exit_code == 2 and said in done.stderr

"""Local stand-ins over real sockets: a web server that keeps what is posted, and a mail server that keeps what is sent."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer


class WebServer(ThreadingHTTPServer):
    """A web server on a free port of this machine."""

    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass


class WebReceiver(WebServer):
    """Keeps path, headers and JSON of every POST, and answers with `status`."""

    def __init__(self):
        super().__init__(_Post)
        self.posts: list[tuple[str, dict, dict]] = []
        self.status = 200


class _Post(QuietHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.append((self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()


class MailReceiver(ThreadingTCPServer):
    """An SMTP server (RFC 5321) for one message a connection; `refuses` is the reply to DATA, `login` what AUTH was given."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, tls: ssl.SSLContext | None = None):
        super().__init__(("127.0.0.1", 0), _Session)
        self.messages, self.receivers, self.login, self.refuses = [], [], "", ""
        self.port = self.server_address[1]
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)


class _Session(StreamRequestHandler):
    def handle(self):
        server = self.server
        self.say("220 ready")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb == "EHLO":
                self.say("250-here", "250 AUTH PLAIN")
            elif verb == "AUTH":
                server.login = base64.b64decode(line.split()[2]).decode()
                self.say("235 welcome")
            elif verb == "DATA" and server.refuses:
                self.say(server.refuses)
            elif verb == "DATA":
                self.say("354 go on")
                lines = []
                while (part := self.rfile.readline()) != b".\r\n":
                    lines.append(part)
                server.messages.append(message_from_bytes(b"".join(lines), policy=policy.default))
                self.say("250 taken")
            elif verb == "QUIT":
                self.say("221 bye")
                return
            else:
                server.receivers += [line] if verb == "RCPT" else []
                self.say("250 fine")

    def say(self, *lines):
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

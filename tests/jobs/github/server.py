"""A local stand-in for GitHub's REST API over real sockets: comments and issues in memory, and failures on demand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.jobs.regressions.receivers import running

TOKEN = "ghs_synthetic0token0that0must0not0show"


@dataclass
class Failure:
    """What the next requests of a method meet: a status (0 closes the line), before or after the work was done."""

    method: str
    status: int
    headers: dict = field(default_factory=dict)
    body: bytes = b'{"message": "try later"}'
    times: int = 1
    is_done: bool = False


class GitHubServer(ThreadingHTTPServer):
    """Issues by number, comments by issue; every request is noted with its token."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.issues: list[dict] = []
        self.comments: list[dict] = []
        self.failures: list[Failure] = []
        self.seen: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.page_size = 100

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, method):
        return sum(seen == method for seen, _ in self.seen)

    def comment(self, number, body):
        made = {"id": 100 + len(self.comments), "body": body, "html_url": f"{self.url}/c/{len(self.comments)}"}
        self.comments.append({**made, "issue": number})
        return made


class Handler(BaseHTTPRequestHandler):
    """The few routes that are asked for."""

    server: GitHubServer

    def log_message(self, *words):
        pass

    def do_GET(self):
        self._handle(self.command)

    do_POST = do_PATCH = do_GET  # noqa: N815

    def _handle(self, method):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        place = urlsplit(self.path)
        self.server.seen.append((method, place.path))
        self.server.tokens.add(self.headers.get("Authorization"))
        failure = next((item for item in self.server.failures if item.method == method and item.times), None)
        if failure:
            failure.times -= 1
            if failure.is_done:
                self._route(method, place.path, {}, body)
            if not failure.status:
                self.close_connection = True
                return
            self._send(failure.status, failure.body, failure.headers)
            return
        query = {name: values[-1] for name, values in parse_qs(place.query).items()}
        status, found = self._route(method, place.path, query, body)
        if isinstance(found, list):
            self._send_page(found, place.path, query)
        else:
            self._send(status, json.dumps(found).encode())

    def _route(self, method, path, query, body):
        server = self.server
        if match := re.fullmatch(r"/repos/o/r/issues/(\d+)/comments", path):
            number = int(match[1])
            if method == "POST":
                return 201, server.comment(number, body["body"])
            return 200, [item for item in server.comments if item["issue"] == number]
        if match := re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path):
            (found,) = [item for item in server.comments if item["id"] == int(match[1])]
            found.update(body)
            return 200, found
        if path == "/repos/o/r/issues":
            if method == "POST":
                number = len(server.issues) + 1
                labels = body.pop("labels", [])
                url = f"https://github.com/o/r/issues/{number}"
                server.issues.append({"number": number, "state": "open", "html_url": url, "labels": labels, **body})
                return 201, server.issues[-1]
            wanted = query.get("labels")
            return 200, [item for item in server.issues if not wanted or wanted in item["labels"]]
        if match := re.fullmatch(r"/repos/o/r/issues/(\d+)", path):
            found = server.issues[int(match[1]) - 1]
            found.update(body)
            return 200, found
        return 404, {"message": "Not Found"}

    def _send_page(self, items, path, query):
        size = min(int(query.get("per_page", 30)), self.server.page_size)
        page = int(query.get("page", 1))
        headers = {}
        if page * size < len(items):
            more = "&".join(f"{name}={value}" for name, value in {**query, "page": page + 1}.items())
            first = f'<{self.server.url}{path}?page=1>; rel="first"'
            headers["Link"] = f'{first}, <{self.server.url}{path}?{more}>; rel="next"'
        self._send(200, json.dumps(items[(page - 1) * size : page * size]).encode(), headers)

    def _send(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def github_server():
    """A server that runs until the block ends."""
    return running(GitHubServer())

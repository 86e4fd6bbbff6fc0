"""A local stand-in for GitHub's REST API over real sockets: comments and issues in memory, and failures on demand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.jobs.regressions.receivers import QuietHandler, WebServer, running

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


class GitHubServer(WebServer):
    """Issues by number, comments by issue; every request is noted with its token."""

    def __init__(self):
        super().__init__(Handler)
        self.url = f"http://{self.address}"
        self.issues: list[dict] = []
        self.comments: list[dict] = []
        self.failures: list[Failure] = []
        self.seen: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.page_size = 100

    def count(self, method):
        return sum(seen == method for seen, _ in self.seen)

    def comment(self, number, body):
        made = {"id": 100 + len(self.comments), "body": body, "html_url": f"{self.url}/c/{len(self.comments)}"}
        self.comments.append({**made, "issue": number})
        return made


class Handler(QuietHandler):
    server: GitHubServer

    def answer(self):
        method, place, server = self.command, urlsplit(self.path), self.server
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        query = {name: values[-1] for name, values in parse_qs(place.query).items()}
        server.seen.append((method, place.path))
        server.tokens.add(self.headers.get("Authorization"))
        failure = next((item for item in server.failures if item.method == method and item.times), None)
        if failure is None or failure.is_done:
            status, found = self._route(method, place.path, query, body)
        if failure is None:
            links = {}
            if isinstance(found, list):
                found, links = self._page(found, place.path, query)
            self._send(status, json.dumps(found).encode(), links)
            return
        failure.times -= 1
        if failure.status:
            self._send(failure.status, failure.body, failure.headers)
        else:
            self.close_connection = True

    do_GET = do_POST = do_PATCH = answer  # noqa: N815

    def _route(self, method, path, query, body):
        issues, comments = self.server.issues, self.server.comments
        if match := re.fullmatch(r"/repos/o/r/issues/(\d+)/comments", path):
            if method == "POST":
                return 201, self.server.comment(int(match[1]), body["body"])
            return 200, [item for item in comments if item["issue"] == int(match[1])]
        if path == "/repos/o/r/issues":
            if method == "POST":
                number = len(issues) + 1
                url = f"https://github.com/o/r/issues/{number}"
                issues.append({"number": number, "state": "open", "html_url": url, "labels": [], **body})
                return 201, issues[-1]
            return 200, [item for item in issues if query.get("labels") in (None, *item["labels"])]
        if match := re.fullmatch(r"/repos/o/r/issues/(comments/)?(\d+)", path):
            items, key = (comments, "id") if match[1] else (issues, "number")
            (found,) = [item for item in items if item[key] == int(match[2])]
            found.update(body)
            return 200, found
        return 404, {"message": "Not Found"}

    def _page(self, items, path, query):
        size, page = min(int(query.get("per_page", 30)), self.server.page_size), int(query.get("page", 1))
        links = {}
        if page * size < len(items):
            more = "&".join(f"{name}={value}" for name, value in {**query, "page": page + 1}.items())
            first = f'<{self.server.url}{path}?page=1>; rel="first"'
            links["Link"] = f'{first}, <{self.server.url}{path}?{more}>; rel="next"'
        return items[(page - 1) * size : page * size], links

    def _send(self, status, body, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def github_server():
    return running(GitHubServer())

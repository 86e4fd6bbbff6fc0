"""One comment on a pull request that is kept up to date. An invisible marker at its beginning identifies it."""

from __future__ import annotations

from typing import Any

from jobs.github.api import GitHub, has_body, number_of, page_of

#: The first line of the comment: an HTML comment, which GitHub does not show.
MARKER = "<!-- inductor-watch report -->"


def put_comment(github: GitHub, repo: str, number: int, text: str) -> tuple[str, str]:
    """Writes the text into our comment on a pull request or issue; returns what was done and the comment's address.

    What was done is `updated`, `unchanged` or `created`. Only a comment that **begins** with the marker is ours: one that
    quotes it is not.

    Raises:
        GitHubError: GitHub refused or did not answer.
    """
    body = f"{MARKER}\n{text}"
    comments = f"repos/{repo}/issues/{number}/comments"
    existing = _ours(github, comments)
    if existing is None:
        return "created", github.create(comments, {"body": body}, lambda: _ours(github, comments))
    if has_body(existing, body):
        return "unchanged", page_of(existing)
    return "updated", github.patch(f"repos/{repo}/issues/comments/{number_of(existing, 'id')}", {"body": body})


def _ours(github: GitHub, comments: str) -> dict[str, Any] | None:
    objects = (item for item in github.pages(comments) if isinstance(item, dict))
    return next((item for item in objects if str(item.get("body") or "").startswith(MARKER)), None)

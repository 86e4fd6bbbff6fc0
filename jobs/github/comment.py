"""One comment on a pull request that is kept up to date. An invisible marker at its beginning identifies it."""

from __future__ import annotations

from jobs.github.api import GitHub, has_body, page_of

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
    ours = (item for item in github.pages(comments) if str(item.get("body") or "").startswith(MARKER))
    existing = next(ours, None)
    if existing is None:
        return "created", github.create(comments, {"body": body})
    if has_body(existing, body):
        return "unchanged", page_of(existing)
    return "updated", github.patch(f"repos/{repo}/issues/comments/{existing['id']}", {"body": body})

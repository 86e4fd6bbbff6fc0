"""One comment on a pull request that is brought up to date in place, found again by a marker that nobody sees."""

from __future__ import annotations

from typing import Any

from jobs.github.api import GitHub, GitHubError, LostAnswerError

#: The first line of the comment: an HTML comment, which GitHub does not show.
MARKER = "<!-- inductor-watch report -->"


def put_comment(github: GitHub, repo: str, number: int, text: str) -> tuple[str, str]:
    """Writes the text into our comment on a pull request or issue; the word for what was done, and the comment's address.

    The word is `updated`, `unchanged` or `created`. Only a comment that **begins** with the marker is ours: one that quotes it
    is not. Where a server failed while it made one, it is looked for before another is made.

    Raises:
        GitHubError: GitHub said no or did not answer.
    """
    body = f"{MARKER}\n{text}"
    if (found := _found(github, repo, number)) is not None:
        return _updated(github, repo, found, body)
    try:
        made = github.post(f"repos/{repo}/issues/{number}/comments", {"body": body})
    except LostAnswerError:
        if (found := _found(github, repo, number)) is None:
            made = github.post(f"repos/{repo}/issues/{number}/comments", {"body": body})
        else:
            return _updated(github, repo, found, body)
    return "created", page_of(made)


def _found(github: GitHub, repo: str, number: int) -> dict[str, Any] | None:
    for comment in github.pages(f"repos/{repo}/issues/{number}/comments"):
        if isinstance(comment, dict) and str(comment.get("body") or "").startswith(MARKER):
            return comment
    return None


def _updated(github: GitHub, repo: str, found: dict[str, Any], body: str) -> tuple[str, str]:
    # GitHub gives line ends back as a browser would have sent them.
    if str(found.get("body")).replace("\r\n", "\n").strip() == body.strip():
        return "unchanged", page_of(found)
    number = found.get("id")
    if type(number) is not int:
        raise GitHubError("GitHub's list of comments has one without a number: is GITHUB_API_URL right?")
    return "updated", page_of(github.patch(f"repos/{repo}/issues/comments/{number}", {"body": body}))


def page_of(found: Any) -> str:
    """The address that people open for what GitHub answered."""
    url = found.get("html_url") if isinstance(found, dict) else None
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise GitHubError("GitHub's answer has no html_url: is GITHUB_API_URL right?")
    return url

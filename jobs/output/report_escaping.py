"""Texts of a database on their way into Markdown: somebody else wrote them, and nothing in them may mean anything there."""

from __future__ import annotations

import re

from jobs.output.terminal import one_line

#: What means nothing in Markdown or HTML wherever it stands.
_PLAIN = re.compile(r"[A-Za-z0-9 ,;%/()=+.-]")
#: GitHub looks for these once the page is drawn: what follows is kept apart by a space of no width.
_CALLS = "@#"
#: A name longer than this is cut.
_LONGEST = 300


def prose(text: str, limit: int = _LONGEST) -> str:
    """The text outside of code: as `code`, and nobody is called and no issue is linked by it."""
    flat = one_line(text, limit)
    spelled = (_spelled(flat, at) + "&#8203;" * (char in _CALLS) for at, char in enumerate(flat))
    return "".join(spelled)


def code(text: str, limit: int = _LONGEST) -> str:
    """The text as `<code>`: no markup, no link, no mention, no cell's end, whatever it holds.

    All that could mean something becomes a numeric character reference, which CommonMark takes for text and never for
    structure; GitHub looks for mentions, issues and commits outside of code only.
    """
    flat = one_line(text, limit)
    return f"<code>{''.join(_spelled(flat, at) for at in range(len(flat)))}</code>"


def fence(text: str, language: str = "") -> str:
    """The text as a block of code, under a fence longer than any run of backticks in it."""
    flat = "\n".join(one_line(line) for line in text.split("\n"))
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{language}\n{flat}\n{mark}"


def _spelled(text: str, at: int) -> str:
    char = text[at]
    # Within a word an underscore is no emphasis; a dot or a dash may begin a list or a link to www.
    if char == "_" and 0 < at < len(text) - 1 and text[at - 1].isalnum() and text[at + 1].isalnum():
        return char
    if char == "." and text[max(0, at - 3) : at].lower() == "www":
        return "&#46;"
    # At the beginning of a line a mark, or a number with one, begins a list or a heading.
    if (at == 0 and not char.isalnum()) or (
        char in ".)" and text[:at].isdigit() and text[at + 1 : at + 2] in ("", " ")
    ):
        return f"&#{ord(char)};"
    # Elsewhere these begin a quotation or a link.
    if (char == ":" and text[at + 1 : at + 2] != "/") or (char == ">" and at > 0):
        return char
    if _PLAIN.fullmatch(char) or (not char.isascii() and char.isalpha()):
        return char
    return f"&#{ord(char)};"

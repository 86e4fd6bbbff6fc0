"""Errors of asking, and the words of their texts: each is one line that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ExpectedError(Exception):
    """What the input or the machine does, and no bug; the text is one line. The command line ends with `exit_code`."""

    exit_code = 2


class ConfigError(ExpectedError):
    """The request does not fit: an unknown template, mode or key, a wrong type, options that exclude each other."""


class ZooError(ExpectedError):
    """A model was asked for that is not in the zoo, or not for this device, phase or dtype. One line, with the way out."""


class UnavailableError(Exception):
    """The request is sound, but this machine or this torch lacks a component; the text names it."""


class NotCompiledError(Exception):
    """The compiled program ran in eager, wholly or in all that matters; the text says why."""


class NotCheckedError(RuntimeError):
    """The correctness check itself could not be done, which says nothing about the model; the text says why."""


class BundleError(ExpectedError):
    """A bundle that cannot be used at all; the text says why and what to do."""


def nearest(word: str, known: Iterable[str], count: int = 3, where: str = "") -> str:
    """The known words nearest to a misspelt one, for an error message: `did you mean a, b?`, or all of them.

    `where` says what lists them, where they are too many for a line.
    """
    words = sorted(known)
    if not words:
        return "there is none yet"
    # A dotted key is often misspelt in its last part or given without its prefix, so both spellings are compared.
    by_lower = {w.lower(): w for w in words}
    close = [by_lower[match] for match in difflib.get_close_matches(word.lower(), by_lower, n=count, cutoff=0.5)]
    close += [w for w in words if w.rpartition(".")[2] == word.rpartition(".")[2] and w not in close]
    close += [w for w in words if word and word.lower() in w.lower() and w not in close]
    if close:
        return f"did you mean {', '.join(close[:count])}?"
    return f"{where} lists them" if where and len(words) > 20 else f"known: {', '.join(words)}"


def one_line(text: str, limit: int = 300) -> str:
    """Return the text without anything that breaks a line, steers the terminal or turns the writing round, cut to `limit`.

    Each such character becomes U+FFFD, so that one sees that there was something. `--json` has the text as it is.
    """
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."

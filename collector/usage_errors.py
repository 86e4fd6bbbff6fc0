"""Errors of requests and inputs, and helpers for their texts: one line that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ExpectedError(Exception):
    """An error of the input or the machine, and no bug; its text is one line. The command line ends with `exit_code`."""

    exit_code = 2


class ConfigError(ExpectedError):
    """A request that is wrong: an unknown template, mode or key, a wrong type, or options that exclude each other."""


class ZooError(ExpectedError):
    """A request for a model that is not in the zoo, or not for this device, phase or dtype. The text says what to do."""


class UnavailableError(Exception):
    """A component that a sound request needs and this machine or this torch lacks; the text names it."""


class NotCompiledError(Exception):
    """A compiled program that ran in eager, wholly or in all that matters; the text says why."""


class NotCheckedError(RuntimeError):
    """A correctness check that could not be done, which says nothing about the model; the text says why."""


class BundleError(ExpectedError):
    """A bundle that cannot be used at all; the text says why and what to do."""


def nearest(word: str, known: Iterable[str], count: int = 3, where: str = "") -> str:
    """Return a hint for an error message: `did you mean a, b?` with the known words nearest to `word`, or else all of them.

    `where` names the command or function that lists the words; it is named in their place if they are more than 20.
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
    """Return a text on one line, cut to `limit`, without control characters and changes of the writing direction.

    Each such character becomes U+FFFD, so that its place can be seen. `--json` has the unchanged text.
    """
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."

"""`${{ ... }}` as GitHub Actions evaluates it, as far as this project's workflows use it; anything else is an error.

Rules: "Evaluate expressions in workflows and actions" in GitHub's documentation. What is missing is the empty string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)|(?P<mark>\|\||&&|==|!=|[!().,]))"
)
_WHOLE = re.compile(r"^\$\{\{(.*?)\}\}$", re.DOTALL)
_PART = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


def evaluate(source: str, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """The value of one expression, without its braces."""
    return _Parser(_tokens(source), contexts, {"fromJSON": json.loads, **functions}).whole()


def fill(value: Any, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """A value of the YAML with its expressions replaced; one that is nothing but an expression keeps its type."""
    if isinstance(value, Mapping):
        return {key: fill(item, contexts, functions) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if (whole := _WHOLE.match(value)) and "${{" not in whole[1]:
        return evaluate(whole[1], contexts, functions)
    return _PART.sub(lambda match: spell(evaluate(match[1], contexts, functions)), value)


def spell(value: Any) -> str:
    """A value as a text, as in an environment variable."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tokens(source: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while place < len(source.rstrip()):
        match = _TOKEN.match(source, place)
        if match is None:
            raise ValueError(f"no expression of this runner: {source!r}")
        found.append((str(match.lastgroup), match[str(match.lastgroup)]))
        place = match.end()
    return found


class _Parser:
    def __init__(
        self, tokens: list[tuple[str, str]], contexts: Mapping[str, Any], functions: Mapping[str, Any]
    ) -> None:
        self.tokens, self.contexts, self.functions = tokens, contexts, functions

    def whole(self) -> Any:
        value = self.either()
        if self.tokens:
            raise ValueError(f"unexpected {self.tokens[0][1]!r}")
        return value

    def taken(self, *marks: str) -> str | None:
        if self.tokens and self.tokens[0][0] == "mark" and self.tokens[0][1] in marks:
            return self.tokens.pop(0)[1]
        return None

    def either(self) -> Any:
        value = self.both()
        while self.taken("||"):
            other = self.both()
            value = value or other
        return value

    def both(self) -> Any:
        value = self.equal()
        while self.taken("&&"):
            other = self.equal()
            value = value and other
        return value

    def equal(self) -> Any:
        value = self.single()
        while mark := self.taken("==", "!="):
            is_equal = spell(value) == spell(self.single())
            value = is_equal if mark == "==" else not is_equal
        return value

    def single(self) -> Any:
        if self.taken("!"):
            return not self.single()
        if self.taken("("):
            value = self.either()
            assert self.taken(")"), "a bracket is left open"
            return value
        kind, text = self.tokens.pop(0)
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            return float(text) if "." in text else int(text)
        assert kind == "name", f"unexpected {text!r}"
        return self.call(text) if self.taken("(") else self.path(text)

    def call(self, name: str) -> Any:
        arguments = []
        while not self.taken(")"):
            arguments.append(self.either())
            self.taken(",")
        return self.functions[name](*arguments)

    def path(self, name: str) -> Any:
        if name in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[name]
        value = self.contexts[name]  # a context that the runner does not know is a mistake, what it lacks is not
        while self.taken("."):
            value = value.get(self.tokens.pop(0)[1], "") if isinstance(value, Mapping) else ""
        return value

"""What can happen to the bytes of an input: scratches, cuts, odd numbers, lines in another order, nesting without end."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_ODD_NUMBERS = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1",
    b"0",
    b"9" * 400,
    b"1e-400",
    b"null",
    b"true",
    b'"7"',
    b"",
)
_ODD_BYTES = (
    b"\x00",
    b"\xff\xfe",
    b"\xc3",
    b'"',
    b"\\",
    b"\\ud800",
    b"\r",
    b"\r\n",
    b"\n",
    b"\n\n",
    b",,,,",
    b"{",
    b"}",
    b"[]",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"\xe2\x80\xa8",
    b"\x1b[2J",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"x" * 20000,
    b"\n" + b"7," * 500,
)


def _scratch(data: bytes, rng: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randint(1, 30)):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def _flip(data: bytes, rng: Random) -> bytes:
    found = bytearray(data)
    found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _cut(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _behead(data: bytes, rng: Random) -> bytes:
    return data[rng.randrange(1, len(data)) :]


def _insert(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(_ODD_BYTES) + data[at:]


def _remove(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randint(1, 200) :]


def _odd_number(data: bytes, rng: Random) -> bytes:
    places = list(_NUMBER.finditer(data))
    if not places:
        return _scratch(data, rng)
    place = rng.choice(places)
    return data[: place.start()] + rng.choice(_ODD_NUMBERS) + data[place.end() :]


def _lines(change: Callable[[list[bytes], Random], object]) -> Callable[[bytes, Random], bytes]:
    def mutate(data: bytes, rng: Random) -> bytes:
        lines = data.splitlines(keepends=True)
        change(lines, rng)
        return b"".join(lines)

    return mutate


def _swap(lines: list[bytes], rng: Random) -> None:
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]


def _repeat(lines: list[bytes], rng: Random) -> None:
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))


def _leave_out(lines: list[bytes], rng: Random) -> None:
    del lines[rng.randrange(len(lines))]


MUTATORS: dict[str, Callable[[bytes, Random], bytes]] = {
    "scratched bytes": _scratch,
    "one bit": _flip,
    "cut": _cut,
    "beheaded": _behead,
    "inserted": _insert,
    "removed": _remove,
    "odd number": _odd_number,
    "lines swapped": _lines(_swap),
    "line repeated": _lines(_repeat),
    "line left out": _lines(_leave_out),
}


def mutate(data: bytes, rng: Random) -> tuple[str, bytes]:
    """One mutation, or two in every fifth case, with its name."""
    name = rng.choice(list(MUTATORS))
    found = MUTATORS[name](data, rng)
    if found and rng.random() < 0.2:
        found = MUTATORS[rng.choice(list(MUTATORS))](found, rng)
    return name, found

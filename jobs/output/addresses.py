"""Addresses and tokens that somebody sets, before anything is sent there. What they hold is shown nowhere."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

import click

#: This host: it needs no proxy, and no encryption.
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def split_address(name: str, text: str) -> SplitResult:
    """The parts of the address that an option or a variable holds. Raises `click.UsageError` for none."""
    try:
        parts = urlsplit(text)
        is_fine = bool(parts.hostname) and (parts.port or 1) > 0 and text.isprintable()
    except ValueError:
        is_fine = False
    if not is_fine:
        raise click.UsageError(f"{name} is no address such as https://host/path")
    return parts


def check_secret_address(name: str, text: str) -> str:
    """The address, which may hold a secret or gets one. Raises `click.UsageError` unless it is https, or on this host."""
    parts = split_address(name, text)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise click.UsageError(f"{name} must be an https:// address: a secret is in it, or sent there")
    return text


def check_token(name: str, text: str) -> str:
    """The token. Raises `click.UsageError` where it cannot stand in a header."""
    if not re.fullmatch(r"[\x21-\x7e]*", text):
        raise click.UsageError(f"{name} holds characters that no token has: copy it again")
    return text

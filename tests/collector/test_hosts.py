"""Every host of a cell, fakes too, takes what the protocol says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from collector.measure.cell import Alone, Host
from collector.process.worker import PipeHost
from tests.collector.hosts import ListeningHost

TESTS = Path(__file__).parents[1]
HOSTS = Path(__file__).with_name("hosts.py")


@pytest.mark.parametrize("host", [Alone, PipeHost, ListeningHost])
@pytest.mark.parametrize("method", ["stage", "exclusive", "released"])
def test_a_hosts_methods_take_the_arguments_of_the_protocol(host, method):
    expected, found = (inspect.signature(getattr(owner, method)).parameters.values() for owner in (Host, host))
    assert [(one.name, one.kind, one.default) for one in found] == [
        (one.name, one.kind, one.default) for one in expected
    ]


def test_tests_have_no_other_fake_host():
    defining = {path for path in TESTS.rglob("*.py") if re.search(r"def exclusive\(\s*self", path.read_text())}
    assert defining == {HOSTS}


def test_a_listening_host_notes_what_is_held_and_given_back():
    host = ListeningHost()
    with host.exclusive("device", 5):
        with host.released():
            assert host.held == []
        with pytest.raises(ValueError, match="in vain"), host.exclusive():
            assert host.held == ["device", "measure"]
            raise ValueError("in vain")
        assert host.held == ["device"]
    assert (host.held, host.events) == ([], ["device", "measure", "given back", "given back"])

"""Small copies of bundles hold what the bundles hold."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from collector.bundle import read_bundle
from collector.code import Code, Graph, Kernel, unpack_text
from collector.output_file import find
from scripts import small_bundles
from tests.factories import cell, header, passing, write_bundle

CODES = [Code(name * 16, (Graph(f"w{name}", (Kernel(f"triton_{name}", f"k{name}"),)),)) for name in ("a", "b")]
ASKED = {"pace": {"overlay": "/somewhere/overlays/one", "workers": 2}}
TEXTS = {name: f"text of {name} with ü" for name in ("wa", "ka", "wb", "kb")}


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A way to copy a bundle of two cells, each with code; returns the bundle as it was, and the copy's path."""

    def make(*options):
        measured = [passing(cell(f"m{code.code_id[0]}"), code_id=code.code_id) for code in CODES]
        path = write_bundle(
            tmp_path / "runs", header("r1", asked=ASKED), measured, codes=[(code, TEXTS) for code in CODES]
        )
        monkeypatch.setattr(sys, "argv", ["small_bundles", str(path.parent), str(tmp_path / "out"), *options])
        small_bundles.main()
        return read_bundle(path), tmp_path / "out" / "r1.jsonl.xz"

    return make


def test_a_copy_reads_as_the_bundle_and_is_found_as_one(copied):
    bundle, path = copied()
    copy = read_bundle(path)
    assert copy.header.asked == {"pace": {"overlay": "one", "workers": 2}}
    assert replace(copy, header=bundle.header) == bundle
    assert {name: unpack_text(packed) for name, packed in copy.texts.items()} == TEXTS
    assert find(path.parent, "r1") == path


def test_a_copy_without_a_cell_has_no_trace_of_it(copied):
    _, path = copied("--without", "mb:inference")
    copy = read_bundle(path)
    assert [one.model for one in copy.planned] == ["ma"]
    assert [one.cell.model for one in copy.measurements] == ["ma"]
    assert (set(copy.codes), set(copy.texts)) == ({"a" * 16}, {"wa", "ka"})

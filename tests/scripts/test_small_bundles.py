"""Small copies of bundles hold what the bundles hold."""

from __future__ import annotations

import sys
from dataclasses import replace

from collector.bundle import read_bundle
from collector.code import Code, Graph, Kernel, unpack_text
from collector.output_file import find
from scripts import small_bundles
from tests.factories import cell, header, passing, write_bundle

CODES = [Code(name * 16, (Graph(f"w{name}", (Kernel(f"triton_{name}", f"k{name}"),)),)) for name in ("a", "b")]
ASKED = {"pace": {"overlay": "/somewhere/overlays/one", "workers": 2}}
TEXTS = {name: f"text of {name} with ü" for name in ("wa", "ka", "wb", "kb")}


def test_a_copy_reads_as_the_bundle_or_has_no_trace_of_a_cell(tmp_path, monkeypatch):
    measured = [passing(cell(f"m{code.code_id[0]}"), code_id=code.code_id) for code in CODES]
    codes = [(code, TEXTS) for code in CODES]
    bundle = read_bundle(write_bundle(tmp_path / "runs", header("r1", asked=ASKED), measured, codes=codes))

    def copied(name, *options):
        monkeypatch.setattr(sys, "argv", ["small_bundles", str(tmp_path / "runs"), str(tmp_path / name), *options])
        small_bundles.main()
        return read_bundle(find(tmp_path / name, "r1"))

    copy = copied("all")
    assert copy.header.asked == {"pace": {"overlay": "one", "workers": 2}}
    assert replace(copy, header=bundle.header) == bundle
    assert {name: unpack_text(packed) for name, packed in copy.texts.items()} == TEXTS
    copy = copied("some", "--without", "mb:inference")
    assert [one.model for one in copy.planned] == [one.cell.model for one in copy.measurements] == ["ma"]
    assert (set(copy.codes), set(copy.texts)) == ({"a" * 16}, {"wa", "ka"})

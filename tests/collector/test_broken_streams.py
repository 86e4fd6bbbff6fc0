"""A gzipped bundle with a broken byte gives every line that the bytes before it tell."""

import gzip
import zlib

import pytest

from collector.bundle_file import read_lines


@pytest.mark.parametrize("at", [300, 700, 1500, 3000])
def test_lines_before_a_broken_byte_are_read(at, tmp_path):
    lines = [f"{number} {zlib.crc32(str(number).encode())}" for number in range(800)]
    data = bytearray(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    assert 4000 < len(data) < 8192  # more than is read at once
    told = zlib.decompressobj(wbits=31).decompress(data[:at]).count(b"\n")
    data[at : at + 40] = bytes(40)
    path = tmp_path / "broken.jsonl.gz"
    path.write_bytes(data)
    damage: list[str] = []
    found = [line.decode("latin-1") for line in read_lines(path, damage)]
    assert found[:told] == lines[:told]
    assert told > 20
    assert damage

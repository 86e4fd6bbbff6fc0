"""Write small copies of bundles, to hand on with their generated code.

    python -m scripts.small_bundles FOLDER OUT [--without MODEL:PHASE ...]

In a bundle each text of generated code is compressed by itself, so that a kill loses at most one line. In a copy the texts are
plain and the whole file is compressed with xz: a night of 71 cells takes a quarter of the space. `ingest` reads copies, but
`resume` cannot continue them. Cells of `--without` are left out with their code, as if they had not been planned.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from collector.code import unpack_text
from collector.output_file import LARGEST, read_lines

Record = dict[str, Any]


def small(records: list[Record]) -> bytes:
    """Return the records of a bundle as the bytes of an .xz file. Raises `ValueError` if they are larger than any bundle."""
    lines = (json.dumps(_with_plain_text(record), separators=(",", ":")).encode() + b"\n" for record in records)
    data = b"".join(lines)
    if len(data) > LARGEST:
        raise ValueError(f"{len(data) >> 20} MiB of plain text, {LARGEST >> 20} MiB at most")
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def without(bundles: list[list[Record]], cells: Collection[str]) -> list[list[Record]]:
    """Return the bundles of a folder without these cells (`MODEL:PHASE`) and without code that only they have."""
    if not cells:
        return bundles
    kept = [[one for one in records if _cell(one) not in cells] for records in bundles]
    code_ids = {
        one["code_id"] for records in kept for one in records if one["record"] == "measurement" and "code_id" in one
    }
    codes = [one for records in kept for one in records if one["record"] == "code" and one["code_id"] in code_ids]
    graphs = [graph for code in codes for graph in code["graphs"]]
    named = code_ids | {graph["wrapper"] for graph in graphs}
    named |= {kernel[1] for graph in graphs for kernel in graph["kernels"]}
    key = {"code": "code_id", "text": "text_id"}
    return [
        [one for one in records if one["record"] not in key or one[key[one["record"]]] in named] for records in kept
    ]


def _cell(record: Record) -> str:
    return f"{record['cell']['model']}:{record['cell']['phase']}" if "cell" in record else ""


def _with_plain_text(record: Record) -> Record:
    if "asked" in record:
        record = {**record, "asked": _without_folders(record["asked"])}
    packed = record.pop("zlib", None)
    return record if packed is None else {**record, "text": unpack_text(packed)}


def _without_folders(value: Any) -> Any:
    """Return a run's request with absolute paths cut to their last names, since the copy is for other people."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def main() -> None:
    """Write the copies, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--without", nargs="*", default=[], metavar="MODEL:PHASE")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    paths, damage = sorted(asked.folder.glob("*.jsonl.gz")), list[str]()
    bundles = [[json.loads(line) for line in read_lines(path, damage)] for path in paths]
    if damage:
        sys.exit(f"{asked.folder}: {'; '.join(damage)}")
    for path, records in zip(paths, without(bundles, set(asked.without)), strict=True):
        copy = asked.out / f"{path.name.removesuffix('.gz')}.xz"
        copy.write_bytes(small(records))
        print(f"{copy}: {copy.stat().st_size:,} bytes, {path.stat().st_size:,} before")


if __name__ == "__main__":
    main()

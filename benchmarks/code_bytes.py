"""What generated code costs in bundles: bytes of each closed bundle as it is, and without the records of code.

python -m benchmarks code_bytes BUNDLE...
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path


def main() -> None:
    """Prints a line for each bundle."""
    for path in map(Path, sys.argv[1:]):
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        records = [json.loads(line) for line in lines]
        rest = []
        for line, record in zip(lines, records, strict=True):
            if record["record"] not in ("code", "text"):
                name = record.get("code_id")
                rest.append(line.replace(f',"code_id":"{name}"'.encode(), b"") if name else line)
        cells = sum(record["record"] == "measurement" for record in records)
        whole, without = len(gzip.compress(b"".join(lines))), len(gzip.compress(b"".join(rest)))
        print(f"{path.name}: {cells} cells, {whole} bytes, {whole - without} of them code ({1 - without / whole:.1%})")


if __name__ == "__main__":
    main()

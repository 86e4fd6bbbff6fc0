"""Holds the table of Inductor options that came, moved or stopped against the torch of the Python that runs this.

    ENV/bin/python scripts/check_options.py [--source FOLDER] [--json]

Prints a line a row of `collector/configs/option_history.py`: `holds`, `WRONG`, or `-` where this torch has none yet. Needs torch
and nothing else; with `--source` not even that, but a folder in which `torch/` lies as a wheel has it. Exit code 1 if a row
is wrong. Whether a name is taken is asked of torch (of `torch/_inductor/config.py` with `--source`); whether its code reads
the option is looked for in its source.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.configs.option_history import CAME, STOPPED, Came, Stopped, Version, version_of

#: A row's key, whether it holds, and what was found.
Row = tuple[str, str, str]


def main() -> int:
    """Checks each row."""
    words = sys.argv[1:]
    version, known, folder = (
        _unpacked(Path(words[words.index("--source") + 1])) if "--source" in words else _installed()
    )
    here, source = version_of(version), _source(folder)
    rows = [_came(row, here, known) for row in CAME] + [_stopped(row, here, known, source) for row in STOPPED]
    if "--json" in words:
        print(json.dumps({"torch": version, "rows": rows}, indent=2))
    else:
        print(f"torch {version}: {len(known)} options")
        for key, said, why in rows:
            print(f"{said:<6} {key:<50} {why}")
    return int(any(said == "WRONG" for _, said, _ in rows))


def _installed() -> tuple[str, set[str], Path]:
    """Version, options and folder of the torch that is installed."""
    import torch
    from torch._inductor import config

    return torch.__version__, set(config.get_config_copy()), Path(torch.__file__).parent


def _unpacked(folder: Path) -> tuple[str, set[str], Path]:
    """The same of one that lies in a folder; its options are the names that its config assigns."""
    version = re.search(r"__version__ = '(.+?)'", (folder / "torch/version.py").read_text())
    tree = ast.parse((folder / "torch/_inductor/config.py").read_text())
    return version[1] if version else "0.0", set(_assigned(tree.body)), folder / "torch"


def _assigned(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _assigned(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            if node.value is not None and "alias=" in ast.unparse(node.value):
                continue  # another config's option, which torch.compile does not take
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (f"{prefix}{target.id}" for target in targets if isinstance(target, ast.Name))


def _came(row: Came, here: Version, known: set[str]) -> Row:
    there = _is_there(row.key, known)
    expected = here >= row.since
    why = f"since {_spell(row.since)}: {'there' if there else 'not there'} in {_spell(here)}"
    return row.key, "holds" if there == expected else "WRONG", why


def _stopped(row: Stopped, here: Version, known: set[str], source: str) -> Row:
    """Before `since` the option must be read, if there is one yet; from then on be gone, or be read nowhere."""
    there = _is_there(row.key, known)
    read = there and _is_read(row.key, source)
    told = f"since {_spell(row.since)}: {'there' if there else 'not there'}{', read' if read else ''} in {_spell(here)}"
    if here < row.since and not there:
        return row.key, "-", told
    return row.key, "holds" if read == (here < row.since) else "WRONG", told


def _is_there(key: str, known: set[str]) -> bool:
    return any(name.startswith(key) for name in known) if key.endswith("_") else key in known


def _is_read(key: str, source: str) -> bool:
    """Whether torch's code names the option as it reads options: `config.key`, or `..._SECTION_config.key` of a section."""
    section, _, name = key.rpartition(".")
    start = rf"(?:config\.{section}|{section}_config)" if section else "config"
    return (
        re.search(rf"{start}\.{re.escape(name)}{'' if key.endswith('_') else '(?![_a-zA-Z0-9])'}", source) is not None
    )


def _source(torch: Path) -> str:
    files = [
        path for room in ("_inductor", "compiler") for path in (torch / room).rglob("*.py") if path.name != "config.py"
    ]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def _spell(version: Version) -> str:
    return ".".join(map(str, version))


if __name__ == "__main__":
    sys.exit(main())

"""Run one benchmark: `python -m benchmarks NAME [OPTIONS]`. Without a name all benchmarks are listed."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

from collector.usage_errors import ExpectedError


def benchmarks() -> dict[str, str]:
    """Return the name of every module of this package that has a `main`, with the first line of its docstring."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main() -> int:
    """Run the benchmark that the first argument names, with the remaining arguments; return the exit code."""
    names = benchmarks()
    if sys.argv[1:2] and sys.argv[1] in names:
        del sys.argv[0]
        try:
            runpy.run_module(f"benchmarks.{sys.argv[0]}", run_name="__main__", alter_sys=True)
        except ExpectedError as error:
            sys.exit(str(error))
        return 0
    print("usage: python -m benchmarks NAME [OPTIONS]; NAME --help lists the options\n")
    for name, summary in names.items():
        print(f"  {name:<18} {summary}")
    return 0 if sys.argv[1:] in ([], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main())

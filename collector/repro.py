"""The command that measures a cell again."""

from __future__ import annotations

import re
import shlex

from collector.own_models import USER
from collector.vocabulary import OWN_BATCH, Cell, Config

#: Names of models that a command line takes for nothing but a name, wherever they come from.
_NAME = re.compile(r"[\w+][\w.+/-]*", re.ASCII)
#: Inductor's options by which a config would have a program run, or code be loaded from a folder.
_PROGRAM = re.compile(
    r"cxx|nvcc|hipcc|compiler|command|cmd|exe$|linker|launcher|_dir$|_path$|_home$|root$|logpath$|lib|library$|_output$|_spec$"
)
#: Values that can be given to any option: Inductor puts some into the command line of a compiler, where a blank begins the
#: next argument, and `-wrapper` names a program.
_WORD = re.compile(r"[\w.][\w.,:+-]*|", re.ASCII)
_LEVEL = re.compile(r"-?O\w+|\d")


def repro_command(cell: Cell) -> str:
    """Return the command that measures a cell again, ready for a shell.

    Cells come from bundles, which others may have written. Where the command would call what a bundle defines, a comment
    of the shell says what to do instead: a model of the user's own is called by its name in the local `models.toml` only.
    """
    if not _NAME.fullmatch(cell.model):
        what = "your own model" if cell.suite == USER else "a model"
        return _comment(f"{cell.suite}/{cell.model} is {what} that only the bundle defines: docs/own-models.md")
    if key := program_key(cell.config):
        return _comment(f"the config names a program or a folder: {key}")
    words = ["inductor-watch", "run", "--suite", cell.suite, "--model", cell.model, "--config", cell.config.name]
    words += ["--phase", cell.phase.value, "--dtype", cell.dtype, "--device", cell.device]
    if cell.batch_size != OWN_BATCH:
        words += ["--batch-size", str(cell.batch_size)]
    return shlex.join(words)


def program_key(config: Config) -> str:
    """Return the option of a config that names a program or a folder of code, or could; empty where none does."""
    return next((key for key, value in config.overrides.items() if isinstance(value, str) and _may_run(key, value)), "")


def _may_run(key: str, value: str) -> bool:
    name = key.rpartition(".")[2]
    if "/" in value or _PROGRAM.search(name):
        return True
    if name.endswith("opt_level"):
        return not _LEVEL.fullmatch(value)
    return not name.endswith("regex") and not _WORD.fullmatch(value)


def _comment(text: str) -> str:
    return "# " + "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)[:200]

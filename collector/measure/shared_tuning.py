"""Shares autotuning results between processes, so that the same kernel runs under the same configuration in each.

Autotuning times nearly equal candidates, so two processes of one program may choose differently, and their latencies differ
by percents. With a folder, the first process that tunes a kernel decides; later ones, of any build of torch, get its result
written into their caches before they compile. Kernels are identified by the hash of their source, as Inductor names their
files, and operations (matrix products, convolutions) by Inductor's own keys.

    FOLDER/SYSTEM/SUITE.MODEL.PHASE.DTYPE.BATCH.json
        {"kernels": {"xy/cxyz.py": {HASH OF THE CANDIDATES: {"torch": [GIT, ...], "chosen": {...}}}},
         "operations": {OPERATION: {INPUTS: {PRECISION: {CANDIDATE: MS}}}, DECISION: VALUE}}

SYSTEM is Inductor's hash of GPU, CUDA and Triton.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from collector.vocabulary import Cell

#: Raised by a read-only folder, a foreign file or a torch that keeps its results elsewhere: none may cost a measurement.
_DAMAGE = (OSError, ValueError, TypeError, AttributeError, KeyError, ImportError)


class SharedTuning:
    """The results for one cell's model: call `lay_in` before it compiles and `keep` afterwards.

    All configs of a model share them, so that two configs do not differ by chance.
    """

    def __init__(self, folder: Path, cell: Cell) -> None:
        words = (cell.suite, cell.model, cell.phase.value, cell.dtype, str(cell.batch_size))
        self._name = ".".join(re.sub(r"[^\w-]+", "_", word) for word in words) + ".json"
        self._folder = folder
        self._laid: dict[str, dict[str, Any]] = {}

    def lay_in(self) -> None:
        """Writes the known results into this process's caches. An unreadable file counts as empty."""
        with suppress(*_DAMAGE):
            self._lay_in(self._read())
            from torch._inductor.runtime.triton_heuristics import CachingAutotuner

            keep_descents(CachingAutotuner, self._laid)

    def _lay_in(self, known: Mapping[str, Any]) -> None:
        for kernel, by_candidates in known["kernels"].items():
            choice, file = _for_this_torch(by_candidates), _choice_file(kernel)
            if file and choice:
                self._laid[kernel] = choice
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(choice))
        if known["operations"]:
            _write(_operations_file(), {"system": {}, "cache": known["operations"]})

    def keep(self) -> dict[str, Any]:
        """Adds the results of this process that were not known. Returns counts for the details, or why nothing was kept."""
        try:
            return self._keep()
        except _DAMAGE as error:
            return {"not_kept": f"{type(error).__name__}: {error}"[:300]}

    def _keep(self) -> dict[str, int]:
        chosen, timed = dict(_chosen_here()), _read(_operations_file()).get("cache", {})
        found = sum(self._laid.get(kernel) == choice for kernel, choice in chosen.items())
        with self._locked():
            known = self._read()
            counts = [_add_kernel(known["kernels"], kernel, choice) for kernel, choice in chosen.items()]
            operations = _add(known["operations"], timed)
            _write(self._file, known)
        return {
            "kernels_found": found,
            "kernels_tuned": len(chosen) - found,
            "decided_otherwise": counts.count(False),
            "operations_new": operations,
        }

    @property
    def _file(self) -> Path:
        return self._folder / _operations_file().name / self._name

    def _read(self) -> dict[str, Any]:
        found = _read(self._file)
        return {part: found[part] if isinstance(found.get(part), dict) else {} for part in ("kernels", "operations")}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def shared_where_asked(cell: Cell, folder: str) -> SharedTuning | None:
    """The choices for a cell in `folder`, or None if that is empty (`Settings.shared_tuning`)."""
    return SharedTuning(Path(folder), cell) if folder else None


def keep_descents(autotuner: Any, laid: Mapping[str, Mapping[str, Any]]) -> None:
    """Wraps `CachingAutotuner.coordinate_descent_tuning` in this process: it returns a choice of `laid` as it is.

    Inductor marks a stored choice with `config.found_by_coordesc`. Since triton-lang/triton#6595 a config loses the mark when
    a compile worker sends the kernel back, and Inductor would tune the kernel again.
    """
    tune = autotuner.coordinate_descent_tuning

    @functools.wraps(tune)
    def tuned(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        choice = laid.get("/".join(Path(self.filename or "").parts[-2:]), {})
        config = launcher.config
        options = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        if choice.get("found_by_coordesc") and options.items() <= choice.items():
            return launcher
        return tune(self, launcher, *args, **kwargs)

    autotuner.coordinate_descent_tuning = tuned


def _for_this_torch(by_candidates: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of this build of torch, else the first one: Inductor refuses it if the candidates differ."""
    entries = [entry for entry in by_candidates.values() if isinstance(entry.get("chosen"), dict)]
    mine = [entry for entry in entries if torch.version.git_version in entry.get("torch", ())]
    return next((dict(entry["chosen"]) for entry in [*mine, *entries]), None)


def _chosen_here() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each kernel in this process's cache whose configuration was chosen among several, with the choice."""
    for source in sorted(_cache_folder().glob("??/*.py")):
        kernel = f"{source.parent.name}/{source.name}"
        file = _choice_file(kernel)
        if file and (choice := _read(file)):
            # This key names a binary in this process's cache, which no other process has.
            yield kernel, {key: value for key, value in choice.items() if key != "triton_cache_hash"}


def _add_kernel(kernels: dict[str, Any], kernel: str, choice: dict[str, Any]) -> bool:
    """Keeps a choice unless there is one already. False if that one differs."""
    entry = kernels.setdefault(kernel, {}).setdefault(str(choice.get("configs_hash")), {"torch": [], "chosen": choice})
    if torch.version.git_version not in entry["torch"]:
        entry["torch"].append(torch.version.git_version)
    return {**entry["chosen"], "time_taken_ms": 0} == {**choice, "time_taken_ms": 0}


def _add(known: dict[str, Any], new: Mapping[str, Any]) -> int:
    """Adds what is not known yet at any depth: times of candidates, and decisions such as whether to pad a matrix.

    Returns for how many keys something was new.
    """
    count = 0
    for key, value in new.items():
        if key not in known:
            known[key] = value
            count += 1
        elif isinstance(known[key], dict) and isinstance(value, dict):
            count += _add(known[key], value) > 0
    return count


def _cache_folder() -> Path:
    from torch._inductor.runtime.runtime_utils import cache_dir

    return Path(cache_dir())


def _choice_file(kernel: str) -> Path | None:
    """Where Inductor looks for a kernel's choice; None if this torch keeps them elsewhere or it is no kernel's name."""
    if not re.fullmatch(r"\w\w/\w+\.py", kernel):
        return None
    try:
        from torch._inductor.runtime.autotune_cache import AutotuneCache

        meta = {"autotune_local_cache": True, "autotune_remote_cache": False}
        made = AutotuneCache.create(meta, str(_cache_folder() / kernel), "")
        return Path(made.local_cache[1]) if made and made.local_cache else None
    except (ImportError, AttributeError, TypeError):
        return None


def _operations_file() -> Path:
    from torch._inductor.codecache import CacheBase

    return Path(CacheBase.get_local_cache_path())


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, data: Mapping[str, Any]) -> None:
    """Writes a file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    made = file.with_name(f"{file.name}.{os.getpid()}")
    made.write_text(json.dumps(data))
    made.replace(file)

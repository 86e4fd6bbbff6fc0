"""Autotuning results that processes share, and the time that a first compiled call spends on autotuning.

Autotuning times nearly equal candidates, so two processes of one program may choose differently, and their latencies differ
by percents. With a shared folder the first process that tunes a kernel decides; later processes, of any build of torch, write its
result into their caches before they compile the kernel. Processes that compile at the same time choose one after the other, and
the second one takes what the first has just chosen. Kernels are identified by their source without their own name, which
ends with a running number, so that a kernel is found even if another program has one more kernel before it. Operations (matrix
products, convolutions) are identified by Inductor's own keys. Whether a kernel keeps its binary, as for a C++ wrapper, does not
matter.

    FOLDER/SYSTEM/SUITE.MODEL.PHASE.DTYPE.BATCH.json
        {"kernels": {KERNEL: {HASH OF THE CANDIDATES: {"torch": [GIT, ...], "chosen": {...}}}},
         "operations": {OPERATION: {INPUTS: {PRECISION: {CANDIDATE: MS}}}, DECISION: VALUE}}

SYSTEM is Inductor's hash of GPU, CUDA and Triton.

To know the time of tuning, Inductor's functions that choose among candidates are wrapped, by their names in torch 2.7 to 2.13.
The work of a function that a torch lacks counts as compilation. torch's own fields (`compile_time_autotune_time_us`,
`runtime_triton_autotune_time_us`) are not enough: they leave out candidates that the scheduler compiles, and configurations of a
kernel that workers compile.
"""

from __future__ import annotations

import fcntl
import functools
import importlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from collector.code import KERNEL
from collector.failures import reason_of
from collector.measure.candidates import compiled_in
from collector.measure.timing import counter_from_here
from collector.process.outcome import Span
from collector.vocabulary import Cell, short_hash

#: Errors of a read-only folder, a foreign file, or a torch that keeps its results elsewhere. They must not fail a measurement.
_DAMAGE = (OSError, ValueError, TypeError, AttributeError, KeyError, ImportError)


#: Seconds for which a process waits while another one chooses for the model. It may have to wait for this very process, which has
#: the device: so then both choose.
_PATIENCE_S = 10.0


class SharedTuning:
    """The shared results of autotuning for a cell's model. Call `install` before the cell compiles and `keep` afterwards.

    All configs of a model share the results, so that two configs do not differ by chance.
    """

    def __init__(self, folder: Path, cell: Cell) -> None:
        self._name = f"{file_name(cell)}.json"
        self._folder = folder
        self._known: dict[str, dict[str, Any]] = {}
        self._laid: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._operations = 0

    def install(self) -> None:
        """Write the shared results into this process's caches, a kernel's choice just before the kernel is compiled.

        An unreadable file counts as empty.
        """
        with suppress(*_DAMAGE):
            known = self._read()
            self._operations = len(known["operations"])
            _lay_operations(known["operations"])
            found = {kernel: _for_this_torch(by_candidates) for kernel, by_candidates in known["kernels"].items()}
            self._known = {kernel: choice for kernel, choice in found.items() if choice}
            from torch._inductor import codecache
            from torch._inductor.async_compile import AsyncCompile

            before_kernels_load(AsyncCompile, codecache, self._install)
            from torch._inductor.runtime.triton_heuristics import CachingAutotuner

            keep_choices(CachingAutotuner, self._laid, self._choosing_for)
            from torch._inductor.fx_passes import pad_mm

            self._decide_one_by_one(pad_mm)

    def _install(self, source: str, file: Path) -> None:
        """Write the shared choice for a kernel, if there is one, to the file in which Inductor looks for it.

        If that file has a choice already, an earlier process of the cell made it: this process times that process's program, and
        keeps the choice.
        """
        kernel, place = _in_cache(file), _choice_file(_in_cache(file))
        if kernel in self._seen or place is None:
            return
        self._seen.add(kernel)
        if own := _read(place):
            self._laid[kernel] = own
        elif choice := self._known.get(kernel_id(source)):
            self._laid[kernel] = choice
            place.write_text(json.dumps(choice))

    @contextmanager
    def _choosing_for(self, kernel: Any) -> Iterator[None]:
        """Let no other process choose for the model in this context.

        Before it a choice that was made meanwhile is taken, and after it one that was made here is told.
        """
        source = Path(kernel.filename or "")
        with ExitStack() as stack:
            with suppress(*_DAMAGE):
                stack.enter_context(self._locked())
                by_candidates = self._read()["kernels"].get(kernel_id(source.read_text()), {})
                candidates, laid = str(_candidates_hash(kernel)), self._laid.get(_in_cache(source), {})
                if candidates in by_candidates and laid.get("configs_hash") != candidates:
                    self._laid[_in_cache(source)] = dict(by_candidates[candidates]["chosen"])
            yield
            with suppress(*_DAMAGE):
                if (file := _choice_file(_in_cache(source))) and (choice := _read(file)):
                    known = self._read()
                    _add_kernel(known["kernels"], kernel_id(source.read_text()), _without_binary(choice))
                    _write(self._file, known)

    def _decide_one_by_one(self, pad_mm: Any) -> None:
        """Wrap Inductor's decision whether to pad a matrix, which it makes by timing, as `_choosing_for` wraps a choice.

        Other processes wait only while this one decides about a product that it does not know.
        """
        should_pad, look_up = pad_mm.should_pad, pad_mm.get_cached_should_pad
        unknown: list[str] = []
        others_wait = ExitStack()

        @_choosing  # the wait for another process is tuning, too
        def learn(key: str) -> Any:
            unknown.append(key)
            with suppress(*_DAMAGE):
                others_wait.enter_context(self._locked())
                _lay_operations(self._read()["operations"])
            return look_up(key)

        def looked_up(key: str) -> Any:
            answer = look_up(key)
            return learn(key) if answer is None else answer

        @functools.wraps(should_pad)
        def decided(*args: Any, **kwargs: Any) -> Any:
            unknown.clear()
            with others_wait:
                answer = should_pad(*args, **kwargs)
                if unknown:
                    with suppress(*_DAMAGE):
                        self._tell_operations()
                return answer

        pad_mm.get_cached_should_pad, pad_mm.should_pad = looked_up, decided

    def _tell_operations(self) -> int:
        known = self._read()
        if new := _add(known["operations"], _read(_operations_file()).get("cache", {})):
            _write(self._file, known)
        return new

    def keep(self) -> dict[str, Any]:
        """Add this process's new results to the shared ones; return counts for the details, or why nothing was kept."""
        try:
            return self._keep()
        except _DAMAGE as error:
            return {"not_kept": reason_of(error)}

    def _keep(self) -> dict[str, int]:
        chosen, timed = list(_chosen_here()), _read(_operations_file()).get("cache", {})
        found = sum(_are_equal(self._laid.get(_in_cache(file), {}), choice) for file, choice in chosen)
        with self._locked():
            known = self._read()
            counts = [_add_kernel(known["kernels"], kernel_id(file.read_text()), choice) for file, choice in chosen]
            operations = _add(known["operations"], timed)
            _write(self._file, known)
        return {
            "kernels_found": found,
            "kernels_tuned": len(chosen) - found,
            "decided_otherwise": counts.count(False),
            "operations_found": self._operations,
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
        until = time.monotonic() + _PATIENCE_S
        with self._file.with_suffix(".lock").open("w") as lock:
            while time.monotonic() < until:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.01)
            yield


def file_name(cell: Cell) -> str:
    """Return the name, without a suffix, of the file or folder that the cells of a model share."""
    words = (cell.suite, cell.model, cell.phase.value, cell.dtype, str(cell.batch_size))
    return ".".join(re.sub(r"[^\w-]+", "_", word) for word in words)


def padding() -> dict[str, bool]:
    """Return whether each matrix product is padded, of those about which a process with these caches decided by timing.

    The keys are hashes of Inductor's own, as a census has them in its questions.
    """
    try:
        known = _read(_operations_file()).get("cache", {}).items()
        return {short_hash(key): answer for key, answer in known if isinstance(answer, bool)}
    except _DAMAGE:
        return {}


def shared_where_asked(cell: Cell, folder: str) -> SharedTuning | None:
    """Return the shared results for a cell in `folder`, or None if `folder` is "" (`Settings.shared_tuning`)."""
    return SharedTuning(Path(folder), cell) if folder else None


#: The parts of a kernel's source with its name, and with the switch that keeps its binary, which a C++ wrapper needs.
_NAMED, _KEPT_BINARY = re.compile(r"'kernel_name': '([^']+)'"), re.compile(r"'store_cubin': \w+")


def kernel_id(source: str) -> str:
    """Return a hash of a kernel's source without its own name and the switch that keeps its binary: kernels of equal tuning."""
    if named := _NAMED.search(source):
        source = re.sub(rf"\b{re.escape(named[1])}\b", KERNEL, source)
    return short_hash(_KEPT_BINARY.sub("", source).strip(), 32)


def before_kernels_load(compiler: Any, codecache: Any, install: Callable[[str, Path], None]) -> None:
    """Wrap `AsyncCompile.triton` and `codecache.write` in this process: `install` gets each kernel's source and file.

    A compile worker would write the source of the kernels that it loads, and it has no shared choices: so this process writes
    them first. Candidate kernels are written and loaded by this process anyway.
    """
    write, triton = codecache.write, vars(compiler)["triton"]

    @functools.wraps(write)
    def written(content: Any, extension: str, *args: Any, **kwargs: Any) -> Any:
        made = write(content, extension, *args, **kwargs)
        if extension == "py":
            with suppress(*_DAMAGE):
                install(content, Path(made[1]))
        return made

    @functools.wraps(triton)
    def compiled(self: Any, kernel_name: str, source_code: str, *args: Any, **kwargs: Any) -> Any:
        with suppress(*_DAMAGE):
            codecache.PyCodeCache.write(source_code)
        return triton(self, kernel_name, source_code, *args, **kwargs)

    codecache.write, compiler.triton = written, compiled


def keep_choices(
    autotuner: Any,
    laid: Mapping[str, Mapping[str, Any]],
    choosing_for: Callable[[Any], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Wrap the methods of `CachingAutotuner` that choose a configuration in this process: they keep the choices in `laid`.

    A kernel with several configurations is timed within `choosing_for` it.

    Inductor (torch 2.11) takes a stored choice and adds variants of it if a reduction's block could be smaller, or compiles all
    configurations anew if the choice was such a variant; then it times them. It marks a stored choice of coordinate descent with
    `config.found_by_coordesc`. Since triton-lang/triton#6595 a config loses the mark when a compile worker sends the kernel
    back, and Inductor would tune the kernel again. A choice among other candidates, as from before a change of heuristics, is
    ignored.
    """
    benchmark, tune = autotuner.benchmark_all_configs, autotuner.coordinate_descent_tuning
    choose = autotuner.autotune_to_one_config

    def choice_for(kernel: Any) -> Mapping[str, Any]:
        return laid.get(_in_cache(Path(kernel.filename or "")), {})

    @functools.wraps(benchmark)
    def benchmarked(self: Any, *args: Any, **kwargs: Any) -> Any:
        choice = choice_for(self)
        is_among_these = choice.get("configs_hash", "") == _candidates_hash(self)
        chosen = [launcher for launcher in self.launchers if is_among_these and _is_of(launcher.config, choice)]
        return {chosen[0]: 0.0} if chosen else benchmark(self, *args, **kwargs)

    @functools.wraps(choose)
    def chose(self: Any, *args: Any, **kwargs: Any) -> Any:
        with choosing_for(self):
            return choose(self, *args, **kwargs)

    @functools.wraps(tune)
    def tuned(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        choice = choice_for(self)
        if choice.get("found_by_coordesc") and _is_of(launcher.config, choice):
            return launcher
        return tune(self, launcher, *args, **kwargs)

    autotuner.benchmark_all_configs, autotuner.coordinate_descent_tuning = benchmarked, tuned
    autotuner.autotune_to_one_config = _choosing(chose)  # the wait for another process is tuning, too


def _candidates_hash(kernel: Any) -> str | None:
    """Return the hash of a kernel's candidates that Inductor saves with the choice; None if this torch does not keep it."""
    return getattr(getattr(kernel.save_cache_hook, "__self__", None), "configs_hash", None)


def _is_of(config: Any, choice: Mapping[str, Any]) -> bool:
    options = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return bool(options.items() <= choice.items())


def _for_this_torch(by_candidates: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the choice of this build of torch, else the first choice; Inductor refuses it if the candidates differ."""
    entries = [entry for entry in by_candidates.values() if isinstance(entry.get("chosen"), dict)]
    mine = [entry for entry in entries if torch.version.git_version in entry.get("torch", ())]
    return next((dict(entry["chosen"]) for entry in [*mine, *entries]), None)


def _chosen_here() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the file of each kernel in this process's cache whose configuration was chosen among several, with the choice."""
    for source in sorted(_cache_folder().glob("??/*.py")):
        file = _choice_file(_in_cache(source))
        if file and (choice := _read(file)):
            yield source, _without_binary(choice)


def _without_binary(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice without the key that names a binary in this process's cache, which no other process has."""
    return {key: value for key, value in choice.items() if key != "triton_cache_hash"}


def _lay_operations(known: Mapping[str, Any]) -> None:
    """Add shared results of operations to those of this process's cache."""
    own = {"system": {}, "cache": {}} | _read(_operations_file())
    if _add(own["cache"], known):
        _write(_operations_file(), own)


def _in_cache(file: Path) -> str:
    """Return a kernel's file as `xy/cxyz.py`, the name that Inductor makes from the hash of its source."""
    return "/".join(file.parts[-2:])


def _add_kernel(kernels: dict[str, Any], kernel: str, choice: dict[str, Any]) -> bool:
    """Add a choice unless there is one already for these candidates; return whether the stored choice equals it.

    A choice of coordinate descent replaces the choice among candidates that it began from, which was told before.
    """
    entry = kernels.setdefault(kernel, {}).setdefault(str(choice.get("configs_hash")), {"torch": [], "chosen": choice})
    if choice.get("found_by_coordesc") and not entry["chosen"].get("found_by_coordesc"):
        entry["chosen"] = choice
    if torch.version.git_version not in entry["torch"]:
        entry["torch"].append(torch.version.git_version)
    return _are_equal(entry["chosen"], choice)


def _are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two choices have the same configuration, however it was found."""
    how = {"time_taken_ms": 0, "found_by_coordesc": False}
    return {**one, **how} == {**other, **how}


def _add(known: dict[str, Any], new: Mapping[str, Any]) -> int:
    """Add new entries at any depth: times of candidates, and decisions such as whether to pad a matrix.

    Return the number of top-level keys with something new.
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
    """Return the file in which Inductor looks for a kernel's choice; None if this torch has another place or no such kernel."""
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
    """Write a file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    made = file.with_name(f"{file.name}.{os.getpid()}")
    made.write_text(json.dumps(data))
    made.replace(file)


#: Methods, by module and class, that do nothing but choose. `benchmark*` alone would leave out the candidates' compilation.
_CHOOSING = (
    ("runtime.benchmarking", "Benchmarker", ("benchmark", "benchmark_cpu")),
    ("runtime.benchmarking", "TritonBenchmarker", ("benchmark_gpu",)),
    ("runtime.benchmarking", "InductorBenchmarker", ("benchmark_gpu",)),
    ("runtime.triton_heuristics", "CachingAutotuner", ("benchmark_all_configs", "coordinate_descent_tuning")),
    ("runtime.triton_heuristics", "CachingAutotuner", ("_combo_sequential_autotune",)),
    ("select_algorithm", "AlgorithmSelectorCache", ("__call__",)),
    ("ir", "MultiTemplateBuffer", ("choice_timings",)),
    ("scheduler", "Scheduler", ("compile_kernel", "benchmark_fused_nodes", "benchmark_codegened_module")),
    ("scheduler", "Scheduler", ("_evaluate_pending_template_fusions",)),
)


@dataclass(slots=True)
class Tuning:
    """The cost of tuning: spans on the monotonic clock that may overlap, and instructions of the thread that began recording.

    `candidates` is the folder in which candidates of that thread are compiled, or None for Triton's usual one.
    """

    spans: list[Span] = field(default_factory=list)
    instructions: int = 0
    candidates: Path | None = None
    thread: int = field(default_factory=threading.get_ident)
    can_count: bool = True


class _Depth(threading.local):
    """The depth of nested choices in a thread, and of nested waits for the kernels of a finished program."""

    choosing = waiting = 0


_depth = _Depth()
_tuning: Tuning | None = None
_is_watching = False


def watch() -> None:
    """Wrap Inductor's functions in this process, if that is not done yet."""
    global _is_watching
    if _is_watching:
        return
    _is_watching = True
    for module, owner, names in _CHOOSING:
        for name in names:
            _replace(module, owner, name, _choosing)
    _replace("async_compile", "AsyncCompile", "wait", _waiting)
    _replace("codecache", "LambdaFuture", "result", _awaited)
    _replace("runtime.triton_heuristics", "CachingAutotuner", "precompile", _precompiled)


@contextmanager
def recorded(candidates: Path | None = None) -> Iterator[Tuning]:
    """Record the cost of Inductor's tuning in this context, in all threads; nothing is recorded unless `watch` was called.

    With a folder `candidates`, candidates are searched and kept there (`compiled_in`).
    """
    global _tuning
    _tuning = found = Tuning(candidates=candidates)
    try:
        yield found
    finally:
        _tuning = None


def _replace(module: str, owner: str, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    with suppress(ImportError, AttributeError, KeyError):  # there is no Triton, or this torch has no such function
        found = getattr(importlib.import_module(f"torch._inductor.{module}"), owner)
        if callable(method := vars(found)[name]):
            setattr(found, name, wrap(method))


def _choosing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method whose whole time is tuning."""

    @functools.wraps(method)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if _tuning is None or _depth.choosing:
            return method(*args, **kwargs)
        begin, count = time.monotonic(), _instructions(_tuning)
        # The folder is set by an environment variable, which acts in all threads: so only one thread sets it.
        folder = _tuning.candidates if threading.get_ident() == _tuning.thread else None
        _depth.choosing += 1
        try:
            with compiled_in(folder):
                return method(*args, **kwargs)
        finally:
            _depth.choosing -= 1
            if _tuning is not None:
                _tuning.spans.append((begin, time.monotonic()))
                _tuning.instructions += count()

    return timed


def _instructions(tuning: Tuning) -> Callable[[], int]:
    """Begin to count instructions; the returned function ends the count. It returns 0 if they cannot be counted."""
    if not tuning.can_count or threading.get_ident() != tuning.thread:
        return int
    end = counter_from_here()
    tuning.can_count = end is not None  # torch prints a line for each attempt that fails
    return end or int


def _waiting(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the wait for the kernels of a finished program; kernels that a process awaits elsewhere are candidates."""

    @functools.wraps(wait)
    def noted(*args: Any, **kwargs: Any) -> Any:
        _depth.waiting += 1
        try:
            return wait(*args, **kwargs)
        finally:
            _depth.waiting -= 1

    return noted


def _awaited(result: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the wait for one kernel that a worker compiles."""

    @functools.wraps(result)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()
        kernel = result(*args, **kwargs)
        if _candidates(kernel):
            _note(kernel, begin, is_whole=not _depth.waiting)
        return kernel

    return timed


def _precompiled(precompile: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the compilation of a kernel's configurations, which this process does itself if it has no workers."""

    @functools.wraps(precompile)
    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()
        made = precompile(self, *args, **kwargs)
        _note(self, begin, is_whole=False)
        return made

    return timed


def _candidates(kernel: Any) -> int:
    """Return the number of configurations with which a kernel was compiled; 0 if it is no Triton kernel."""
    results = getattr(kernel, "compile_results", None)
    return len(results) if isinstance(results, list) else 0


def _note(kernel: Any, begin: float, *, is_whole: bool) -> None:
    """Record the time since `begin`, which a kernel took, as tuning: all of it, or the share of all configurations but one.

    Inductor compiles the configurations of a kernel one after the other in one call, so only their sum is known.
    """
    end, candidates = time.monotonic(), _candidates(kernel)
    if _tuning is not None and not _depth.choosing and (is_whole or candidates > 1):
        share = 1.0 if is_whole else 1 - 1 / candidates
        _tuning.spans.append((end - share * (end - begin), end))

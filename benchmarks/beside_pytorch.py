"""Measure cells with PyTorch's own benchmark runner and with ours, in turn on one host, and print a table of ratios.

    python -m benchmarks beside_pytorch --runner FOLDER --out FOLDER [--phase training] [--model NAME ...]
    python -m benchmarks beside_pytorch --table FOLDER

`--runner` is a working copy of pytorch/pytorch's benchmarks/dynamo (a synced copy is in pytorch/benchmark under
userbenchmark/dynamo/dynamobench). A few cells are measured by processes of the runner, one after the other, and then by
ours, in a pool; then the next few cells follow. Each process has empty caches, and both have equal models, batches, dtypes and
numbers of samples. While a cell is measured, the runner's next process imports its libraries. Training is `--amp` with the
optimiser that the runner takes for the model.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from collector.bundle import BundleWriter
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase

_HUGGINGFACE = [
    *("BertForMaskedLM", "OPTForCausalLM", "DistilBertForMaskedLM", "GPT2ForSequenceClassification", "T5Small"),
    *("ElectraForCausalLM", "PLBartForCausalLM", "DistillGPT2"),
]
_TIMM = [
    *("deit_tiny_patch16_224.fb_in1k", "vit_base_patch16_siglip_256", "beit_base_patch16_224", "visformer_small"),
    *("repvgg_a2", "mobilenetv2_100", "convnextv2_nano.fcmae_ft_in22k_in1k", "mobilevit_s"),
]
_SCRIPTS = {"huggingface": "huggingface.py", "timm": "timm_models.py"}
_CONFIGS = {"triton": ["--disable-cudagraphs"], "cudagraphs": []}
#: A program that imports the slow libraries, waits for a line, and becomes the runner's script.
_STARTER = """
import runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, "")
import torch, transformers
if hasattr(transformers, sys.argv[-1]):
    getattr(transformers, sys.argv[-1])
sys.stdin.readline()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_MEBI = 2**20


def cells_of(models: Sequence[str], phase: Phase, device: str) -> list[Cell]:
    """Return the cells of both suites, without and with cudagraphs, at the batch sizes of our zoo."""
    from collector.zoo.registry import find

    dtype = "amp" if phase is Phase.TRAINING else "bfloat16" if device == "cuda" else "float32"
    named = [("huggingface", name) for name in _HUGGINGFACE] + [("timm", name) for name in _TIMM]
    return [
        Cell(suite, name, phase, dtype, device, find(suite, name).batch_size(phase, device), Config(template=config))
        for suite, name in named
        if not models or name in models
        for config in _CONFIGS
    ]


class Peer:
    """A process of PyTorch's runner for one cell; it starts early, and measures once `measure` is called."""

    def __init__(self, cell: Cell, runner: Path, out: Path, samples: int) -> None:
        self._stem = out / f"{cell.suite}_{cell.model}_{cell.phase}_{cell.config.template}"
        self._raw = Path(f"{self._stem}-raw_timings-{cell.model}-{cell.device}.npy")
        how = ["--training", "--amp"] if cell.phase is Phase.TRAINING else ["--inference", f"--{cell.dtype}"]
        command = [
            *(sys.executable, "-c", _STARTER, _SCRIPTS[cell.suite], "--inductor", "--performance", *how),
            *("--cold-start-latency", "--device", cell.device, "-n", str(samples), "--dump-raw-metrics"),
            *("--output", f"{self._stem}.csv", "--batch-size", str(cell.batch_size)),
            *_CONFIGS[cell.config.template or ""],
            *("--only", cell.model),
        ]
        self._log = self._stem.with_suffix(".log").open("w")
        self._process = subprocess.Popen(
            command, cwd=runner, stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT, text=True
        )

    def close(self) -> None:
        """End the process before it has measured."""
        self._process.kill()
        self._process.wait()

    def measure(self, timeout_s: float = 300) -> dict[str, Any]:
        """Let the runner measure; return its status, its raw timings in milliseconds, compile time, compression and peaks."""
        import numpy as np

        began = time.monotonic()
        try:
            self._process.communicate("go\n", timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        wall_s = round(time.monotonic() - began, 1)
        if not self._raw.exists():
            return {"status": f"failed, see {self._stem.name}.log", "wall_s": wall_s}
        with Path(f"{self._stem}.csv").open() as stream:
            row = list(csv.DictReader(stream))[-1]
        eager, compiled = (np.load(self._raw) * 1e3).T
        return {
            "status": "pass",
            "wall_s": wall_s,
            "samples": {"eager_ms": eager.round(4).tolist(), "compiled_ms": compiled.round(4).tolist()},
            "compile_s": float(row["compilation_latency"]),
            "compression": float(row["compression_ratio"]),
            "compiled_peak_bytes": float(row["dynamo_peak_mem"]) * 1e9,
            "eager_peak_bytes": float(row["eager_peak_mem"]) * 1e9,
        }


def optimizers(runner: Path) -> dict[str, str]:
    """Return the models for which the runner takes SGD in performance runs, mapped to `sgd`; it takes Adam for all others."""
    for node in ast.parse((runner / "common.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BENCHMARK_USE_SGD":
            return dict.fromkeys(ast.literal_eval(node.value), "sgd")
    return {}


def run(cells: Sequence[Cell], runner: Path, out: Path, samples: int, workers: int) -> Iterator[dict[str, Any]]:
    """Measure a few cells at a time with both runners; yield a row for each cell, and write our measurements into bundles."""
    from jobs.pool.runner import Pool, make_header, now, record, scheduler_for
    from jobs.pool.testbeds import find_testbeds
    from jobs.requested_options import ExecutionOptions, RequestedOptions, RunNames

    device, pace = cells[0].device, ExecutionOptions(workers)
    (testbed,) = find_testbeds(device, pace)
    environment = testbed.environment
    sgd = optimizers(runner)
    writers: dict[str, BundleWriter] = {}
    with tempfile.TemporaryDirectory() as scratch:
        peers = [Peer(cells[0], runner, Path(scratch), samples)]
        for optimizer, group in groups(cells, sgd, workers):
            found: dict[str, dict[str, Any]] = {}
            for cell in group:
                theirs = peers.pop().measure()
                following = cells.index(cell) + 1
                peers += [Peer(one, runner, Path(scratch), samples) for one in cells[following : following + 1]]
                found[cell.cell_id] = {"cell": cell.to_json(), "optimizer": optimizer, "runner": theirs}
            settings = Settings(rounds=samples, optimizer=optimizer)
            if optimizer not in writers:
                asked = RequestedOptions(settings, pace)
                header = make_header(environment, RunNames(label="beside PyTorch's runner"), asked)
                planned = [one for one in cells if optimizer_of(one, sgd) == optimizer]
                writers[optimizer] = BundleWriter(out, header, planned)
            writer, began = writers[optimizer], time.monotonic()
            lane = scheduler_for(testbed, list(group), settings, {})
            for _, outcome in Pool([lane]).run():
                record(writer, outcome)
                measured = outcome.measurement
                found[measured.cell.cell_id]["ours"] = {
                    "status": measured.status.value,
                    "wall_s": measured.wall_s,
                    "disturbed": measured.details.get("disturbed"),
                    **measured.metrics,
                    "samples": measured.samples,
                }
            print(f"ours: {len(group)} cells in {time.monotonic() - began:.0f} s", flush=True)
            yield from found.values()
        for peer in peers:
            peer.close()
    for writer in writers.values():
        writer.close(now())


def optimizer_of(cell: Cell, sgd: Mapping[str, str]) -> str:
    """Return the optimiser with which the runner ends a training step of the cell; `none` for inference."""
    return sgd.get(cell.model, "adam") if cell.phase is Phase.TRAINING else "none"


def groups(cells: Sequence[Cell], sgd: Mapping[str, str], many: int) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the cells in order, in groups of at most `many`, each group with its one optimiser."""
    group: list[Cell] = []
    name = ""
    for cell in cells:
        optimizer = optimizer_of(cell, sgd)
        if group and (optimizer != name or len(group) == many):
            yield name, group
            group = []
        name, group = optimizer, [*group, cell]
    if group:
        yield name, group


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of the runner's times and the ratios of ours to them, and below it how many cells agree.

    A cell that was disturbed (`jobs.pool.usage`) is shown but not counted.
    """
    heads = [
        "model",
        "config",
        "runner: eager, compiled ms",
        "eager",
        "compiled",
        "speedup",
        "compile",
        "peak",
        "status",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *map(_line, rows)]
    ratios: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if _is_measured(row) and not row["ours"].get("disturbed"):
            graphs = "with cudagraphs" if row["cell"]["config"]["template"] == "cudagraphs" else "without"
            for name, key in (("eager", "eager_ms"), (f"compiled {graphs}", "compiled_ms")):
                ratios[name].append(_ratio(row, key, median))
                ratios[f"{name}, fastest tenth"].append(_ratio(row, key, _tenth))
    lines += ["", "| ours over the runner's | cells | median | median distance | 3 % | 5 % | 10 % |", "|---" * 7 + "|"]
    for name, values in sorted(ratios.items()):
        off = [abs(value - 1) for value in values]
        within = [str(sum(one <= limit for one in off)) for limit in (0.03, 0.05, 0.1)]
        row = [name, str(len(off)), f"{median(values):.3f}", f"{median(off):.1%}", *within]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "The eager latency of one model, measured in the processes of its two configs:"]
    for side in ("runner", "ours"):
        off = _disagreement(rows, side)
        if off:
            lines.append(
                f"- {side}: median distance {median(off):.1%}, {sum(one <= 0.1 for one in off)} of {len(off)} within 10 %"
            )
    return "\n".join(lines)


def _disagreement(rows: Sequence[Mapping[str, Any]], side: str) -> list[float]:
    """Return for each model one side's larger over its smaller eager latency in the two configs, less 1."""
    eager: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if _is_measured(row) and not row["ours"].get("disturbed"):
            eager[row["cell"]["model"], row["optimizer"]].append(median(row[side]["samples"]["eager_ms"]))
    return [max(pair) / min(pair) - 1 for pair in eager.values() if len(pair) == 2]


def _line(row: Mapping[str, Any]) -> str:
    cell, theirs, ours = row["cell"], row["runner"], row["ours"]
    name = f"{cell['model']}{' ' + row['optimizer'] if row['optimizer'] != 'none' else ''}"
    statuses = ", ".join([theirs["status"], ours["status"], *filter(None, [ours.get("disturbed")])])
    cells = [""] * 6
    if _is_measured(row):
        eager, compiled = _ratio(row, "eager_ms", median), _ratio(row, "compiled_ms", median)
        compile_s = (ours["compile_cold_s"] + ours.get("tuning_s", 0.0)) / theirs["compile_s"]
        peak = ours["compiled_peak_bytes"] / theirs["compiled_peak_bytes"]
        times = (f"{median(theirs['samples'][key]):.2f}" for key in ("eager_ms", "compiled_ms"))
        cells = [", ".join(times), *(f"{value:.2f}" for value in (eager, compiled, eager / compiled, compile_s, peak))]
    return f"| {name} | {cell['config']['template']} | {' | '.join(cells)} | {statuses} |"


def _is_measured(row: Mapping[str, Any]) -> bool:
    return "samples" in row["runner"] and "compiled_ms" in row["ours"]


def _ratio(row: Mapping[str, Any], key: str, of: Callable[[Sequence[float]], float]) -> float:
    return of(row["ours"]["samples"][key]) / of(row["runner"]["samples"][key])


def _tenth(samples: Sequence[float]) -> float:
    """Return the tenth percentile: the time of a call while nothing disturbs the core that launches its kernels."""
    return sorted(samples)[len(samples) // 10]


def main() -> None:
    """Measure the cells, or read earlier rows, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", type=Path, help="folder with the runner's scripts")
    parser.add_argument("--out", type=Path, help="folder for rows (beside_*.jsonl) and our bundles")
    parser.add_argument("--phase", default="inference", choices=[phase.value for phase in Phase])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--model", action="append", default=[], help="[eight models of each suite]")
    parser.add_argument("--samples", type=int, default=50, help="eager/compiled pairs [50]")
    parser.add_argument("--workers", type=int, default=4, help="cells of ours that compile at once [4]")
    parser.add_argument("--table", type=Path, help="print the table of an earlier --out and stop")
    options = parser.parse_args()
    if options.table:
        rows = [json.loads(line) for path in sorted(options.table.glob("beside_*.jsonl")) for line in path.open()]
        print(table(rows))
        return
    if not options.runner or not options.out:
        parser.error("--runner and --out are needed")
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    cells = cells_of(options.model, Phase(options.phase), options.device)
    with (options.out / f"beside_{options.phase}_{cells[0].model}.jsonl").open("w") as stream:
        for row in run(cells, options.runner.resolve(), options.out, options.samples, options.workers):
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            rows.append(row)
            print(f"{len(rows)} of {len(cells)}: {row['cell']['model']} {row['cell']['config']['template']}", end=" ")
            print(f"runner {row['runner']['wall_s']} s, {row['runner']['status']}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

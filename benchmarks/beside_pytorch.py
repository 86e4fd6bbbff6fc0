"""The same cells with PyTorch's own benchmark runner and with ours, in turn on one host, and a table of ratios.

    python -m benchmarks.beside_pytorch --runner FOLDER --out FOLDER [--phase training] [--model NAME ...]
    python -m benchmarks.beside_pytorch --table FOLDER

`--runner` is a working copy of pytorch/pytorch's benchmarks/dynamo (a synced copy is in pytorch/benchmark under
userbenchmark/dynamo/dynamobench). Each cell is measured by a process of the runner and right after it by one of ours, each
with empty caches, with the same model, batch, dtype and number of samples; the next process of the runner imports its
libraries meanwhile. Training is `--amp` with the optimiser that the runner takes for the model.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from collector.bundle import BundleWriter
from collector.launcher import Launcher
from collector.outcome import Outcome
from collector.process import CellProcess
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
#: Imports what takes long, waits for a line, and becomes the runner's script.
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
    """The cells of both suites, without and with cudagraphs, at the batch sizes of our zoo."""
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
    """PyTorch's runner for one cell: started early, measures when told to."""

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

    def measure(self, timeout_s: float = 300) -> dict[str, Any]:
        """What the runner found: its row, and the medians of the raw timings in milliseconds."""
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


def measure_ours(cell: Cell, settings: Settings, launcher: Launcher) -> Outcome:
    """The cell in a process of ours that has the host to itself."""
    process = CellProcess(cell, settings, launcher, os.environ)
    while not process.finished:
        process.pump()
        if process.asks:
            process.grant()
        time.sleep(0.002)
    return process.close()


def optimizers(runner: Path) -> dict[str, str]:
    """The models for which the runner takes SGD in performance runs; it takes Adam for all others."""
    for node in ast.parse((runner / "common.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BENCHMARK_USE_SGD":
            return dict.fromkeys(ast.literal_eval(node.value), "sgd")
    return {}


def run(cells: Sequence[Cell], runner: Path, out: Path, samples: int, limit_s: float) -> Iterator[dict[str, Any]]:
    """Measures each cell with both; yields a row a cell, and writes our measurements into bundles."""
    from jobs.asked import to_asked
    from jobs.host import probe
    from jobs.preloading import preload_for
    from jobs.runner import Pace, RunNames, make_header, now, record

    deadline = time.monotonic() + limit_s
    launcher = Launcher(preload=preload_for(cells, "cuda"))
    environment = probe(cells[0].device)
    sgd = optimizers(runner)
    writers: dict[str, BundleWriter] = {}
    with tempfile.TemporaryDirectory() as scratch:
        peers = [Peer(cells[0], runner, Path(scratch), samples)]
        for at, cell in enumerate(cells):
            found = peers.pop().measure()
            if at + 1 < len(cells):
                peers.append(Peer(cells[at + 1], runner, Path(scratch), samples))
            optimizer = sgd.get(cell.model, "adam") if cell.phase is Phase.TRAINING else "none"
            settings = Settings(rounds=samples, optimizer=optimizer)
            began = time.monotonic()
            while not launcher.is_ready:
                time.sleep(0.05)
            outcome = measure_ours(cell, settings, launcher)
            if optimizer not in writers:
                asked = to_asked(settings, Pace(), environment)
                header = make_header(environment, RunNames(label="beside PyTorch's runner"), "", asked)
                writers[optimizer] = BundleWriter(out, header)
                time.sleep(1)  # a run's name has its second
            writers[optimizer].plan(cell)
            record(writers[optimizer], outcome)
            measured = outcome.measurement
            yield {
                "cell": cell.to_json(),
                "optimizer": optimizer,
                "runner": found,
                "ours": {
                    "status": measured.status.value,
                    "wall_s": round(time.monotonic() - began, 1),
                    **measured.metrics,
                    "samples": measured.samples,
                },
            }
            if time.monotonic() > deadline:
                break
        for peer in peers:
            peer._process.kill()
    for writer in writers.values():
        writer.close(now())
    launcher.close()


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: what the runner measured, and ours over the runner's; below it how many cells agree."""
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
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    ratios: dict[str, list[float]] = {"eager": [], "compiled": [], "compiled with cudagraphs": []}
    for row in rows:
        cell, theirs, ours = row["cell"], row["runner"], row["ours"]
        name = f"{cell['model']}{' ' + row['optimizer'] if row['optimizer'] != 'none' else ''}"
        config = cell["config"]["template"]
        statuses = f"{theirs['status']}, {ours['status']}"
        if "samples" not in theirs or "compiled_ms" not in ours:
            lines.append(f"| {name} | {config} |  |  |  |  |  |  | {statuses} |")
            continue
        eager, compiled = (median(theirs["samples"][key]) for key in ("eager_ms", "compiled_ms"))
        found = {"eager": ours["eager_ms"] / eager, "compiled": ours["compiled_ms"] / compiled}
        ratios["eager"].append(found["eager"])
        ratios["compiled"].append(found["compiled"])
        if config == "cudagraphs":
            ratios["compiled with cudagraphs"].append(found["compiled"])
        rest = [
            found["eager"] / found["compiled"],
            ours["compile_cold_s"] / theirs["compile_s"],
            ours["compiled_peak_bytes"] / theirs["compiled_peak_bytes"],
        ]
        cells = [f"{eager:.2f}, {compiled:.2f}", *(f"{value:.2f}" for value in [*found.values(), *rest])]
        lines.append(f"| {name} | {config} | {' | '.join(cells)} | {statuses} |")
    for name, values in ratios.items():
        if values:
            off = sorted(abs(value - 1) for value in values)
            within = ", ".join(f"{sum(one <= limit for one in off)} within {limit:.0%}" for limit in (0.03, 0.05, 0.1))
            middle = f"median ratio {median(values):.3f}, median distance {median(off):.1%}"
            lines.append(f"\n{name}: {len(off)} cells, {middle}, {within}")
    return "\n".join(lines)


def main() -> None:
    """Entry point of `python -m benchmarks.beside_pytorch`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", type=Path, help="folder with the runner's scripts")
    parser.add_argument("--out", type=Path, help="folder for rows (beside.jsonl) and our bundles")
    parser.add_argument("--phase", default="inference", choices=[phase.value for phase in Phase])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--model", action="append", default=[], help="[eight models of each suite]")
    parser.add_argument("--samples", type=int, default=50, help="eager/compiled pairs [50]")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no further cell begins")
    parser.add_argument("--table", type=Path, help="print the table of an earlier --out and stop")
    options = parser.parse_args()
    if options.table:
        rows = [json.loads(line) for path in sorted(options.table.glob("beside*.jsonl")) for line in path.open()]
        print(table(rows))
        return
    if not options.runner or not options.out:
        parser.error("--runner and --out are needed")
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    cells = cells_of(options.model, Phase(options.phase), options.device)
    with (options.out / f"beside_{options.phase}.jsonl").open("a") as stream:
        for row in run(cells, options.runner.resolve(), options.out, options.samples, options.limit):
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            rows.append(row)
            print(f"{len(rows)} of {len(cells)}: {row['cell']['model']} {row['cell']['config']['template']}", end=" ")
            print(f"runner {row['runner']['wall_s']} s, ours {row['ours']['wall_s']} s", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

"""Synthetic files as PyTorch's own runner would write them; every number in them is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from db.importing.importer import ImportReport, Provenance, import_files
from db.importing.pytorch_names import Given

COMMIT = "d4" * 20
ASKED = Provenance(commit=COMMIT, branch="main", date="2026-08-01T02:00:00+00:00", label="synthetic test data")
PERFORMANCE = (
    "dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,eager_peak_mem,dynamo_peak_mem,"
    "calls_captured,unique_graphs,graph_breaks,unique_graph_breaks,autograd_captures,autograd_compiles,cudagraph_skips"
)
ACCURACY = (
    "dev,name,batch_size,accuracy,calls_captured,unique_graphs,graph_breaks,unique_graph_breaks,autograd_captures,"
    "autograd_compiles,cudagraph_skips,compilation_latency"
)
GOOD = "cuda,hf_Bert_large,16,1.912345,12.345678,25.123456,0.998765,6.123456,6.131028,315,2,1,1,0,0,3"
FAILED = "cuda,timm_vit_x,0,0.000000,0.000000,0,0,0,0,0,0,0,0,0,0,0"
STEM = "inductor_with_cudagraphs_torchbench_bfloat16_inference_cuda_h100"


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return path


def table(folder: Path, target: str, *lines: str, stem: str = STEM, end: str = "\n") -> Path:
    return put(folder, f"{stem}_{target}.csv", end.join(lines) + end)


def record(metric: str, *values: Any, model: str = "hf_Bert_large", **changes: Any) -> dict[str, Any]:
    """One benchmark-v3 record; texts go where PyTorch puts them. `flags` are its arguments."""
    flags = {"device": "cuda", "batch_size": None, "disable_cudagraphs": False, "freezing": False}
    flags |= {"dynamic_shapes": False, "cold_start_latency": True} | changes.pop("flags", {})
    is_text = any(isinstance(value, str) for value in values)
    told = {"extra_info": {"benchmark_values": list(values)}} if is_text else {"benchmark_values": list(values)}
    found = {
        "benchmark": {"name": "TorchInductor", "mode": "inference", "dtype": "bfloat16", "extra_info": flags},
        "model": {"name": model, "type": "OSS model", "backend": "inductor", "origins": ["torchbench"]},
        "metric": {"name": metric, **told},
    }
    return found | changes


def lines(folder: Path, name: str, *records: dict[str, Any]) -> Path:
    return put(folder, name, "".join(json.dumps(item) + "\n" for item in records))


def read(folder: Path, *paths: Path, asked: Provenance = ASKED, given: Given | None = None) -> ImportReport:
    """Imports files into `folder/runs`."""
    return import_files(paths, asked, given or Given(), folder / "runs")

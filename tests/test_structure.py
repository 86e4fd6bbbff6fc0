"""The structure of the code: rules that no linter checks."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("collector", "db", "analysis", "jobs", "dashboard")
FOLDERS = (*PACKAGES, "benchmarks", "scripts")
#: So many modules a reader can keep apart: what changes together is in one.
MOST_MODULES = 200
#: What knows an accelerator: the door, a file for NVIDIA's, and one for the others.
DEVICES = {"collector/device.py", "collector/cuda_device.py", "collector/accelerator_device.py"}
#: What else may name one, and why.
NAMES_ONE = {
    "collector/settings.py": "torch's switches, which every build has, whatever the device",
    "collector/census/absent_gpu.py": "stands in for an NVIDIA GPU that is not there",
    "collector/census/census_process.py": "says which CUDA that GPU's torch is of",
    "collector/bundle.py": "reads the first format, which knew no other accelerator",
    "db/importing/result_files.py": "GraphNet's word",
    "db/importing/pytorch_names.py": "PyTorch's words",
    "analysis/elements/addresses.py": "the words of the HUD's links",
    "jobs/commands/available.py": "a key of NVIDIA's fingerprint, shown where it is there",
}


def modules(folders):
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py") if not path.name.startswith("__")]


def test_no_module_name_is_used_twice_and_the_modules_can_be_counted():
    files = modules(FOLDERS)
    times = Counter(path.name for path in files)
    assert not sorted(str(path.relative_to(ROOT)) for path in files if times[path.name] > 1)
    assert 100 < len(modules(PACKAGES)) <= MOST_MODULES


def test_only_the_files_of_devices_name_an_accelerator():
    words = {"cuda", "xpu", "mps", "is_cuda", "CUDA", "XPU", "MPS"}
    named = {
        str(path.relative_to(ROOT))
        for path in modules(PACKAGES)
        if any(word in path.read_text() for word in words)
        for node in ast.walk(ast.parse(path.read_text()))
        if words & {getattr(node, "value", None) if isinstance(node, ast.Constant) else getattr(node, "attr", None)}
    }
    assert named == DEVICES | NAMES_ONE.keys()

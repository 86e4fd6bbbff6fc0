"""Three pull requests of PyTorch of 2026, as commits that lead to the installed torch: which of them change the code of a cell.

- https://github.com/pytorch/pytorch/pull/171723 gave Inductor a decomposition of silu of its own.
- https://github.com/pytorch/pytorch/pull/179051 put a custom pass into the key of Inductor's cache.
- https://github.com/pytorch/pytorch/pull/185041 wrote the backward of silu with sigmoid.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from collector.bundle import read_bundle
from collector.settings import Settings
from jobs.builds.build_options import SourceOptions
from jobs.builds.build_runs import Backfill, commits_of
from jobs.pool.child import Request, bundle_files
from jobs.requested_options import RequestedOptions, RunNames, Selection
from tests.jobs.repositories import run_git

#: By title the file, and what it was before as replacements of a regular expression.
PULL_REQUESTS = {
    "[inductor] Decompose silu as eager computes it (#171723)": (
        "_inductor/decomposition.py",
        {r" *aten\.silu,  #.*\n": "", r"@register_decomposition\(\[aten\.silu\]\)\n(.+\n)*": ""},
    ),
    "[inductor] Add _post_fusion_custom_pass to FxGraphHashDetails (#179051)": (
        "_inductor/codecache.py",
        {r" *self\._post_fusion_custom_pass = \w+\.\w+\(\n.*\n *\)\n": ""},
    ),
    "Use torch.sigmoid() in silu_backward decomposition (#185041)": (
        "_decomp/decompositions.py",
        {r"(def silu_backward\(.*\n *sigmoid = )torch\.sigmoid\(self\)": r"\1 1 / (1 + torch.exp(-self))"},
    ),
}
MODEL = (
    "import torch\nfrom torch import nn\n"
    "def gate():\n    return nn.Sequential(nn.Linear(64, 64), nn.SiLU()), (torch.randn(1, 64),)\n"
)


@pytest.fixture(scope="module")
def pytorch(tmp_path_factory):
    """A clone with a commit for each pull request; the last is the installed torch."""
    folder, installed = tmp_path_factory.mktemp("clone"), Path(torch.__file__).parent
    run_git(folder, "init", "-q", "-b", "main", ".")
    for path, before in PULL_REQUESTS.values():
        text = (installed / path).read_text()
        for pattern, replacement in before.items():
            text, count = re.subn(pattern, replacement, text)
            assert count == 1, pattern
        (folder / "torch" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "torch" / path).write_text(text)
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-q", "-m", "Before them")
    for title, (path, _) in PULL_REQUESTS.items():
        (folder / "torch" / path).write_text((installed / path).read_text())
        run_git(folder, "commit", "-q", "-a", "-m", title)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pull_requests_that_change_generated_code_are_told_from_others(tmp_path, pytorch, monkeypatch):
    (tmp_path / "own.py").write_text(MODEL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    selection = Selection(models=("own:gate",), phases=("inference", "training"), device="cpu")
    requested = RequestedOptions(Settings(code_only=True))
    request = Request(selection, ("triton",), RunNames(trigger="backfill"), requested)
    backfill = Backfill(request, tmp_path / "out", 1, None, print)
    options = SourceOptions(source=f"{pytorch}@main", wheel_commit="main", overlays=tmp_path / "overlays")
    codes, titles = [], []
    for commit in commits_of(options, last=4):
        assert not backfill.fill(commit).skipped
        (folder,) = (tmp_path / "out" / commit.name).iterdir()
        (bundle,) = bundle_files(folder)
        contents = read_bundle(bundle)
        titles.append(contents.header.commit_title)
        codes.append({item.cell.phase.value: item.code_id for item in contents.measurements})
    assert titles == ["Before them", *PULL_REQUESTS]
    assert all(None not in by_phase.values() for by_phase in codes)
    changed = [{phase for phase, code in after.items() if code != before[phase]} for before, after in pairwise(codes)]
    assert changed == [{"inference", "training"}, set(), {"training"}]

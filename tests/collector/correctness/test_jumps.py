"""Rows in which eager itself is far off: they neither hide an error elsewhere nor make eager run again for nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from collector.correctness import checking
from collector.correctness.jumps import jumping, part_jumps
from collector.vocabulary import Status
from tests.collector.correctness.test_checking import checked


def noisy(exact, far=None, by=0.1):
    made = exact.float() + 1e-4 * torch.randn(exact.shape)
    if far is not None:
        made[far] += by
    return made


def test_jumps_of_eager_are_seen_without_another_run():
    exact = torch.randn(64, 32, dtype=torch.float64)
    assert list(jumping({"output": noisy(exact, 5)}, {"output": exact})) == ["output"]
    large = exact.clone()
    large[5] *= 1000
    eager = (large + 1e-4 * large.abs().mean(1, keepdim=True) * torch.randn(64, 32)).float()
    assert not jumping({"output": eager}, {"output": large})
    chosen = torch.arange(9)
    assert not jumping({"output": chosen}, {"output": chosen})
    assert list(jumping({"output": chosen}, {"output": chosen.flip(0)})) == ["output"]


@pytest.mark.parametrize(("far", "by"), [(None, 0.0), (5, 0.1), (9, 0.1)])
def test_what_agrees_in_each_row_that_jumps_is_parted(far, by):
    torch.manual_seed(0)
    exact = torch.randn(64, 32, dtype=torch.float64)
    eager, made = {"output": noisy(exact, 5), "loss": torch.ones(())}, {"output": noisy(exact, far, by), "loss": 2.0}
    reference = {"output": exact, "loss": torch.ones((), dtype=torch.float64)}
    parted = part_jumps(eager, made, reference, jumping(eager, reference))
    shapes = {snapshot["output"].shape for snapshot in (parted.eager, parted.compiled, parted.reference)}
    assert shapes == {(63, 32)}
    assert parted.eager["output"].dtype is torch.float32 and parted.reference["output"].dtype is torch.float64
    assert (parted.eager["output"] - parted.reference["output"]).abs().max() < 1e-3, "the row that jumps is not in it"
    # A row that jumps in the compiled program alone stays, for the usual rules.
    assert ((parted.compiled["output"] - parted.reference["output"]).abs().max() > 0.05) == (far == 9)
    assert parted.eager["loss"] is eager["loss"]


def test_what_is_further_off_than_eager_in_a_row_that_jumps_is_not_parted():
    torch.manual_seed(0)
    exact = torch.randn(64, 32, dtype=torch.float64)
    eager, reference = {"output": noisy(exact, 5)}, {"output": exact}
    found = jumping(eager, reference)
    assert part_jumps(eager, {"output": noisy(exact, 5, 0.4)}, reference, found) is None
    assert part_jumps(eager, {"output": noisy(exact)[:, :16]}, reference, found) is None
    overflown = noisy(exact)
    overflown[5, 0] = math.inf
    eager = {"output": overflown}
    assert part_jumps(eager, {"output": noisy(exact)}, reference, jumping(eager, reference)) is None
    indices, others = {"output": torch.arange(9)}, {"output": torch.arange(9).flip(0)}
    assert part_jumps(indices, indices, others, jumping(indices, others)) is None


class Rounds(nn.Module):
    """Rounds one row to a coarse grid, which a reference in float64 rounds otherwise; compiled, it may be off elsewhere."""

    def __init__(self, error=0.0):
        super().__init__()
        self.linear, self.error = nn.Linear(32, 64), error

    def forward(self, x):
        out = self.linear(x)
        coarse = out[:1] if out.dtype is torch.float64 else out[:1] + 0.5
        made = torch.cat([coarse, out[1:]])
        return made + self.error if torch.compiler.is_compiling() else made * 1.0


@pytest.mark.parametrize(("error", "runs", "status"), [(0.0, 0, Status.PASS), (0.02, 1, Status.FAIL_ACCURACY)])
def test_eager_runs_under_other_weights_only_where_more_than_its_jumps_differs(error, runs, status, monkeypatch):
    asked, nudged = [], checking.Nudged.of
    monkeypatch.setattr(checking.Nudged, "of", lambda *given: asked.append(given) or nudged(*given))
    torch.manual_seed(0)
    found = checked(Rounds(error), inputs=torch.randn(64, 32))
    assert (found.status, len(asked)) == (status, runs), found.failure
    assert "near_ties" not in found.details

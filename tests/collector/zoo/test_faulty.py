"""Models that go wrong, each in its own way, in one run of the pool: every one ends in its own status, and the run goes on."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from collector.failures import Explanation
from collector.process.launcher import Launcher, Preload
from collector.process.orphans import processes_with_token
from collector.settings import Settings
from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Phase, Stage, Status
from jobs.pool.gpu_scheduler import DeviceSlot
from tests.collector.processes import pooled

EAGER_BACKEND = Config(backend="eager")
#: A GEMM with no candidate at all: there is no back-end of that name.
NO_BACKEND = Config(overrides={"max_autotune": True, "max_autotune_gemm_backends": "BOGUS"})
MODULE = "tests.collector.zoo.faulty"


@dataclass(frozen=True)
class Fault:
    """How the cell of a faulty model must end; `exception`, `hint` and `log` are parts of what must be there."""

    status: Status
    stage: Stage | None = None
    exception: str = ""
    hint: str = ""
    log: str = ""
    config: Config = EAGER_BACKEND


FAULTS = {
    "endless_compile": Fault(Status.TIMEOUT, Stage.COMPILE, "TimeoutError", "--timeout", "torch/_dynamo"),
    "hang_in_a_call": Fault(Status.TIMEOUT, Stage.TIMING, "TimeoutError", "where it hung", "_hang_while_timed"),
    "healthy": Fault(Status.PASS),
    "segfault": Fault(Status.CRASHED, Stage.EAGER, "SIGSEGV", "Python stack", "read_nowhere"),
    "out_of_memory": Fault(Status.OOM, Stage.EAGER, "RuntimeError", "--batch-size", "take_a_petabyte"),
    "wrong_output": Fault(Status.FAIL_ACCURACY, Stage.CORRECTNESS, "fail_accuracy", "emulate_precision_casts", "RMSE"),
    "nondeterministic": Fault(
        Status.NONDETERMINISTIC, Stage.CORRECTNESS, "nondeterministic", "unseeded", "two eager runs differ"
    ),
    "import_error": Fault(Status.MODEL_FAIL_TO_LOAD, Stage.LOAD_MODEL, "ModuleNotFoundError", "install", "no_such_l"),
    "children_left_behind": Fault(Status.PASS),
    "floods_of_output": Fault(Status.MODEL_FAIL_TO_LOAD, Stage.LOAD_MODEL, "RuntimeError", "own code", "after 100 MiB"),
    "no_choices": Fault(
        Status.FAIL_TO_COMPILE, Stage.COMPILE, "InductorError", "keep ATEN", "No choices", config=NO_BACKEND
    ),
    "device_assert": Fault(Status.FAIL_TO_RUN, Stage.COMPILE, "IndexError", "aot_eager", "index out of range"),
}


def faulty(name, config=EAGER_BACKEND, device="cpu"):
    return Cell("user", f"{MODULE}:{name}", Phase.INFERENCE, "float32", device, 4, config)


#: Imported before the first cell, so that what is compiled under the limit is all that takes time under it.
PRELOAD = Preload("nowhere", ["torch._inductor.compile_fx", "torch._dynamo.convert_frame"])


def measured(cells, folder, timeout_s=20, **changes):
    """The outcomes of one run, four cells at once; what is left in their folder; the processes that are left."""
    traces = str(folder.parent / "traces")
    settings = Settings(rounds=5, warmups=1, sample_limit_s=5, timeout_s=timeout_s, trace=traces, **changes)
    tokens, start = [], Launcher.start

    def noted(launcher, token, *args):
        # Each from a server of one thread, which alone forks safely. On a GPU there is a second one, of NVML, which torch
        # asks for the number of GPUs in place of CUDA's driver.
        tokens.append(token)
        threads = [(thread / "comm").read_text() for thread in Path(f"/proc/{launcher.pid}/task").iterdir()]
        assert len([name for name in threads if not name.startswith("cuda")]) == 1, threads
        return start(launcher, token, *args)

    resolve_config(cells[0].config, "cpu")  # imports torch, which makes a folder for caches then
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setattr(Launcher, "start", noted)
        found = [item.measurement for item in pooled(cells, settings, DeviceSlot([[]] * 4), PRELOAD)]
    assert len(set(tokens)) >= len(found) == len(cells)  # what ran out of memory beside others is asked again alone
    by_name = {item.cell.model.partition(":")[2]: item for item in found}
    return (
        by_name,
        sorted(map(str, folder.rglob("*"))),
        [pid for token in tokens for pid in processes_with_token(token)],
    )


#: What hangs holds the others up until its time is over.
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (FAULTS[name].status is Status.TIMEOUT)) for name in FAULTS]


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """One run of all that is asked for; what the other tests look at is always among it."""
    asked = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and "name" in getattr(getattr(item, "callspec", None), "params", {})
    }
    always = {name for name, fault in FAULTS.items() if fault.status is not Status.TIMEOUT}
    (folder := tmp_path_factory.mktemp("run") / "cells").mkdir()
    return measured([faulty(name, FAULTS[name].config) for name in FAULTS if name in asked | always], folder)


@pytest.mark.parametrize("name", NAMES)
def test_each_ends_in_its_own_status_with_what_is_needed_to_act(outcomes, name):
    found, wanted = outcomes[0][name], FAULTS[name]
    assert found.status is wanted.status, found.failure
    if wanted.status is Status.PASS:
        assert found.failure is None
        return
    assert found.failure.stage is wanted.stage
    assert found.failure.exception == wanted.exception
    assert wanted.hint in (found.failure.hint or "")
    assert wanted.log in (found.log_tail or "")


def test_nothing_is_left_of_any_of_them_but_a_trace_that_was_asked_for(outcomes):
    found, files, processes = outcomes
    assert (files, processes) == ([], [])
    assert len(found["floods_of_output"].log_tail) <= 8 * 1024
    healthy = found["healthy"]
    assert healthy.metrics["compiled_ms"] > 0
    assert healthy.details["trace"].endswith(f"traces/{healthy.cell.cell_id}")
    (trace,) = Path(healthy.details["trace"]).iterdir()
    assert "dynamo_start" in trace.read_text()


@pytest.mark.gpu
def test_what_goes_wrong_on_a_gpu_ends_its_own_cell_only(tmp_path):
    (folder := tmp_path / "cells").mkdir()
    config = Config(template="triton")
    names = ["device_assert", "device_assert_in_eager", "out_of_memory", "healthy"]
    found, files, processes = measured([faulty(name, config, "cuda") for name in names], folder, timeout_s=90)
    assert [found[name].status for name in names] == [*(Status.FAIL_TO_RUN, Status.EAGER_FAIL, Status.OOM, Status.PASS)]
    assert all("CUDA_LAUNCH_BLOCKING=1" in found[name].failure.hint for name in names[:2])
    assert "--batch-size" in found["out_of_memory"].failure.hint
    assert (files, processes) == ([], [])


@pytest.mark.slow
def test_a_fault_in_one_lowering_is_named_also_where_it_ends_the_process(tmp_path):
    (folder := tmp_path / "cells").mkdir()
    names = ["wrong_lowering", "crash_in_lowering", "healthy"]
    cells = [faulty(name, Config(template="triton")) for name in names]
    found, files, processes = measured(cells, folder, timeout_s=400, explain=True)
    explained = [Explanation.of(found[name].details) for name in names]
    assert [(item.backend, item.subsystem, item.target, item.status) for item in explained] == [
        ("inductor", "lowerings", "atan", "fail_accuracy"),
        ("inductor", "lowerings", "atan", "crashed"),
        ("", "", "", ""),
    ]
    assert (files, processes) == ([], [])

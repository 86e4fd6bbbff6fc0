"""What `measure` says of a cell, with models of a few lines: each stage's outcome, and real numbers on a pass."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from collector.measure import cell, timing
from collector.measure.cell import Alone, _Run, measure
from collector.measure.program import Subject
from collector.measure.timing import GraphUse, Pass, Profile
from collector.measure.warm import NoWarmCompileError, WarmCompile
from collector.metrics import METRICS
from collector.templates import resolve_config
from collector.vocabulary import CHECKED_ELSEWHERE, Config, Measurement, Phase, Stage, Status, status_words
from collector.zoo.spec import begin_device_use
from tests.collector.correctness.test_checking import Does
from tests.collector.hosts import ListeningHost
from tests.collector.measure.tiny_cells import CELL, EAGER_BACKEND, FEW, INDUCTOR, Breaks, builder, measured, tiny

#: What a CPU measures of a pass.
ON_A_CPU = {
    *("eager_ms", "compiled_ms", "speedup", "compile_cold_s", "eager_peak_bytes", "compiled_peak_bytes", "compression"),
    *("graphs", "graph_breaks", "recompiles", "kernels_generated", "kernels_extern", "yardstick_host_ms"),
}


def test_a_pass_has_its_metrics_its_surroundings_its_lines_and_identity(own_cache):
    outcome = measure(replace(CELL, config=INDUCTOR), builder(Breaks), FEW)
    found, metrics, details = outcome.measurement, outcome.measurement.metrics, outcome.measurement.details
    assert (found.status, found.failure) == (Status.PASS, None)
    assert ON_A_CPU <= set(metrics) <= METRICS.keys()
    assert not {"eager_kernel_ms", "compiled_kernel_ms", "device_speedup", "leak_bytes_per_call"} & metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["compile_cold_s"] > 0
    assert (metrics["graph_breaks"], metrics["graphs"]) == (1, 2)
    assert metrics["speedup"] == metrics["eager_ms"] / metrics["compiled_ms"]
    assert {name: len(values) for name, values in found.samples.items()} == {"eager_ms": 3, "compiled_ms": 5}
    assert set(details["surroundings"]) == {"before", "after"}
    assert "asked for by the test" in str(details["graph_break_reasons"])
    lines, phases, fusion = details["kernel_lines"], details["compile_phases_s"], details["fusion"]
    assert any(name.startswith("cpp_fused") for name in lines["kernels"])
    assert all(line.startswith(("tests/collector/", "torch/nn/")) for line in lines["lines"]), lines
    assert 0 < phases["inductor"] <= phases["aot_autograd"] <= phases["dynamo"] <= found.wall_s
    assert fusion["nodes_before"] >= fusion["kernels"] == metrics["kernels_generated"]
    assert (outcome.environment["torch"], outcome.environment["device"]) == (torch.__version__, "cpu")
    assert "freezing" in outcome.program and found.program_id and found.environment_id
    assert Measurement.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


def test_a_training_step_compiled_before_is_timed_and_has_no_compile_time(own_cache, tmp_path, monkeypatch):
    one, settings = replace(CELL, config=INDUCTOR, phase=Phase.TRAINING), replace(FEW, compiled=str(tmp_path))
    tuning = SimpleNamespace(install=lambda: (tmp_path / "tuned").touch(), keep=dict)
    monkeypatch.setattr("collector.measure.cell.shared_where_asked", lambda *_: tuning)
    monkeypatch.setattr("collector.measure.evidence.kernel_lines", lambda *_: {}["another form"])
    compiling, finding = (measure(one, builder(tiny), settings) for _ in range(2))
    first, later = compiling.measurement, finding.measurement
    assert (first.status, first.failure, later.status) == (Status.PASS, None, Status.PASS)
    assert first.details["tensors_compared"] == 2 + 4  # the loss and the output; two weights and two biases
    assert first.metrics["cosine"] > 0.999 and first.metrics["error_rmse_ratio"] >= 0
    assert first.metrics["saved_bytes"] == sum(size for *_, size in first.details["saved_tensors"])
    assert ("addmm, mul", [4, 32], "float32", 2, 1024) in first.details["saved_tensors"]
    assert first.metrics.keys() - later.metrics.keys() >= {"compile_cold_s"}
    assert not {"compile_instructions", "tuning_s"} & later.metrics.keys()
    assert later.details["compiled_before"] and "compiled_before" not in first.details
    assert (later.code_id, later.metrics["kernels_generated"]) == (first.code_id, first.metrics["kernels_generated"])
    assert first.details["no_kernel_lines"] == "KeyError: 'another form'", "absent with its reason"
    both = compiling.timed_again(finding).measurement
    assert both.metrics.keys() == first.metrics.keys()
    assert (both.samples, both.metrics["compiled_ms"]) == (later.samples, later.metrics["compiled_ms"])
    assert both.metrics["compile_cold_s"] == first.metrics["compile_cold_s"]
    assert both.details["surroundings"] == later.details["surroundings"]
    assert both.details["compile_phases_s"] == first.details["compile_phases_s"]
    for passed, is_checked in ((first.code_id, False), ("another", True)):
        found = measure(one, builder(tiny), replace(settings, passed_code=passed)).measurement.details
        assert ("tensors_compared" in found, CHECKED_ELSEWHERE in found) == (is_checked, not is_checked)
    unchecked = measure(one, builder(tiny), replace(settings, unchecked=True)).measurement
    assert status_words(unchecked.status, unchecked.details) == "pass (outputs not checked)"
    assert status_words("pass", {"checked_by": ["of a foreign bundle"]}) == "pass"
    finding.measurement.code_id = "another"
    assert compiling.timed_again(finding) is None


def test_rounds_go_on_until_the_precision_or_ten_times_as_many():
    found = measured(tiny, replace(FEW, precision=1e-9, sample_limit_s=60))
    assert len(found.samples["compiled_ms"]) == 10 * FEW.rounds
    assert set(found.details["precision"]) == set(found.details["drift"]) == {"eager_ms", "compiled_ms"}


@pytest.mark.parametrize("launches", [2.0, 0.0])
def test_waiting_for_launches_and_kernels_outside_of_graphs_are_told(launches):
    run, outside = _Run(CELL, FEW, Alone()), [("index_put", 3.0, 0.2)]
    run.evidence.take_graph_use(GraphUse(launches, 0.75, 3.0, outside))
    known = {"kernels_outside_graphs": 3.0} if launches else {}
    assert run.metrics == {"cudagraph_launches": launches, "cudagraph_share": 0.75} | known
    assert run.details.get("outside_kernels") == (outside if launches else None)
    run.metrics |= {"eager_ms": 10.0, "eager_kernel_ms": 4.0, "compiled_ms": 2.0, "compiled_kernel_ms": 1.9}
    run.evidence.take_busy_shares()
    assert run.details["busy_share"] == {"eager": 0.4, "compiled": 0.95}
    assert run.details["launch_bound"] == ["eager"]
    assert run.metrics.keys() <= METRICS.keys()


@pytest.mark.gpu
@pytest.mark.parametrize("template", ["triton", "cudagraphs"])
def test_a_cell_on_a_gpu_has_its_roof_and_its_lines(template):
    # A forward of its own: Dynamo keeps no stack of what `nn.Sequential` calls.
    parts = {"first": nn.Linear(16, 32), "last": nn.Linear(32, 4)}
    model = Does(lambda model, x: model.last(nn.functional.gelu(model.first(x))), **parts)
    found = measured(lambda: model, device="cuda", config=Config(template=template))
    names = ("roof", "no_roof", "kernel_lines", "stage_s", "compiled_kernels")
    told = {name: found.details.get(name) for name in names}
    assert 0 < found.metrics["roof_share"] <= 1, told
    assert any(name.startswith("triton_") for name in told["kernel_lines"]["kernels"])
    assert {row[0] for row in told["roof"]["kernels"]} & told["kernel_lines"]["kernels"].keys()


@pytest.mark.gpu
@pytest.mark.parametrize("template", ["triton", "cudagraphs"])
def test_the_memory_of_cudagraphs_is_free_once_outputs_are_compared(template):
    # It keeps 1 GB for its backward pass, with 1 MB of weights.
    parts = {"first": nn.Linear(16, 8192), "last": nn.Linear(8192, 4)}
    wide = Does(lambda model, x: model.last(model.first(x.repeat(4096, 1)).sin()), **parts)
    found = measured(lambda: wide, phase=Phase.TRAINING, device="cuda", config=Config(template=template))
    sizes = found.details["stage_bytes"]
    assert found.status is Status.PASS, found.failure
    assert sizes["timing"] > 500e6
    # Small models of the zoo keep 50 to 150 MB beside their weights: workspaces of libraries.
    assert sizes["done"] < 300e6, sizes


@pytest.mark.parametrize(("before", "after", "leaked", "calls"), [(100, 90, 0, 0), (100, 164, 8, 51)])
def test_a_leak_costs_calls_of_its_own_only_where_memory_grew(before, after, leaked, calls):
    made, run = [], _Run(CELL, FEW, Alone())
    kept = {name: getattr(run.device, name) for name in ("synchronize", "give_back_unused", "reserved")}
    run.device = SimpleNamespace(**kept, allocated=lambda: after + 8 * len(made))
    run._take_leak(lambda: made.append(1), before, after)
    assert (run.metrics, len(made)) == ({"leak_bytes_per_call": leaked}, calls)


def test_each_fault_has_its_stage_and_a_wrong_output_is_timed_all_the_same():
    def fail(_, x):
        raise ValueError(f"no forward for a batch of {len(x)}")

    def ended(make, status, stage, config=EAGER_BACKEND):
        found = measured(make, config=config)
        assert (found.status, found.failure.stage) == (status, stage)
        return found

    wrong = ended(lambda: Does(lambda _, x: x, lambda _, x: x + 1), Status.FAIL_ACCURACY, Stage.CORRECTNESS)
    assert len(wrong.samples["compiled_ms"]) == FEW.rounds
    raised = ended(lambda: Does(fail), Status.EAGER_FAIL, Stage.EAGER)
    assert (raised.failure.exception, raised.failure.message) == ("ValueError", "no forward for a batch of 4")
    broken = ended(Breaks, Status.FAIL_TO_COMPILE, Stage.COMPILE, Config(backend="eager", fullgraph=True))
    assert "compiled_ms" not in raised.metrics and "speedup" not in broken.metrics


class TellsItsDtype(nn.Linear):
    def forward(self, x):
        made = super().forward(x)
        return {"made": made, "dtypes": f"{self.weight.dtype} {made.dtype}"}


def test_autocast_computes_in_its_dtype_and_keeps_the_parameters():
    built = builder(lambda: TellsItsDtype(16, 4))(4, Phase.INFERENCE, "cpu")
    subject = Subject(replace(CELL, dtype="amp_bfloat16"), built)
    for call in (subject.eager, subject.compiled(resolve_config(EAGER_BACKEND, "cpu"))):
        assert call()["dtypes"] == "torch.float32 torch.bfloat16"


@pytest.mark.parametrize("announces", [False, True])
def test_a_model_is_built_without_the_device_until_it_is_moved_there(announces):
    host = ListeningHost()
    events = host.events

    def build(*args):
        events.append("build")
        if announces:
            begin_device_use()
            begin_device_use()
            events.append("build on the device")
        return builder(tiny)(*args)

    assert measure(CELL, build, FEW, host).measurement.status is Status.PASS
    assert [item for item in events if isinstance(item, Stage)] == [
        *(Stage.START, Stage.RESOLVE_CONFIG, Stage.LOAD_MODEL, Stage.EAGER, Stage.COMPILE),
        *(Stage.TIMING, Stage.CORRECTNESS, Stage.DONE),
    ]
    assert events[events.index(Stage.TIMING) + 1] == "measure"
    assert events[events.index(Stage.CORRECTNESS) + 1] == "device"
    loading = events[events.index(Stage.LOAD_MODEL) + 1 : events.index(Stage.EAGER)]
    moved = ["build", "device", *(["build on the device"] if announces else []), "given back"]
    assert loading == ["device", "given back", *moved]


@pytest.mark.parametrize("eager_ms", [0.0, 1e-9])
def test_nothing_is_profiled_before_the_last_samples_nor_ended_in_a_hold(monkeypatch, eager_ms):
    host, sample = ListeningHost(), timing.interleaved
    host.eager_ms, noted = eager_ms, host.events.append
    monkeypatch.setattr(_Run, "on_accelerator", True)
    monkeypatch.setattr(cell, "interleaved", lambda *args, **more: noted("sample") or sample(*args, **more))
    for name, makes in {
        "__enter__": lambda self: noted("profile") or self,
        "__exit__": lambda *_: noted("end"),
    }.items():
        monkeypatch.setattr(Profile, name, makes)
    monkeypatch.setattr(Profile, "record", lambda *_: None)
    monkeypatch.setattr(Profile, "passes", lambda _: [Pass([], 1)] * 4)
    assert measure(CELL, builder(tiny), FEW, host).measurement.status is Status.PASS
    timed = host.events[host.events.index(Stage.TIMING) + 1 : host.events.index(Stage.CORRECTNESS)]
    before = [*("device", "given back", "measure", "sample"), *(["given back", "still", "sample"] if eager_ms else [])]
    profiled = ["profile", Stage.PROFILE, "given back", "end"]
    assert timed[: len(before) + 4] == before + profiled, "a slow host is sampled again"


def test_the_process_that_compiles_again_runs_while_the_device_is_held(monkeypatch):
    host, results = ListeningHost(), [WarmCompile(1.5, (0.0, 2.0), 1)]

    def compile_again(*_):
        assert host.held == ["device"]
        if not results:
            raise NoWarmCompileError("it hung")
        return results.pop()

    monkeypatch.setattr("collector.measure.warm.compile_again", compile_again)
    done, hung = (measured(tiny, replace(FEW, warm_compile=True), host) for _ in range(2))
    assert (done.status, done.metrics["compile_warm_s"], "no_warm_compile" in done.details) == (Status.PASS, 1.5, False)
    assert (hung.status, hung.details["no_warm_compile"]) == (Status.PASS, "it hung")
    assert "compile_warm_s" not in hung.metrics
    assert host.held == []

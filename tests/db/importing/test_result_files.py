"""The files of results of PyTorch and of GraphNet become rows."""

import json
from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Config, Status
from db.importing.importer import Provenance
from tests.db.importing.foreign import ACCURACY, ASKED, FAILED, GOOD, PERFORMANCE, STEM, lines, put, read, record, table

PROMPT = "graph-net-test-compiler-log "
SAMPLE = """\
{p}[Processing] /somewhere/samples/timm/resnet18
{p}[Config] model: resnet18
{p}[Config] device: cuda
{p}[Config] hardware: A GPU
{p}[Config] compiler: inductor
{p}[Config] warmup: 3
{p}[Datatype][eager]: float32 float32
{p}[DataType] eager:['float32'] compiled:['float32'] match:True
{p}[Correctness][equal]: 0 0
{p}[Correctness][all_close_atol_1.00E-05_rtol_1.30E-06]: 1 1
{p}[Correctness][all_close_atol_1.00E-02_rtol_1.00E-02]: 1 1
{p}[Performance][eager]: {{"e2e": {{"median": 4.5, "std": 0.1}}, "gpu": {{"median": 4.25}}}}
{p}[Performance][compiled]: {{"e2e": {{"median": 3.0, "std": 0.1}}, "gpu": {{"median": 2.5}}}}
{p}[Result] status: success
{p}[Speedup][e2e]: 1.5
{p}[Speedup][gpu]: 1.7
"""


def log(prompt=PROMPT, text=SAMPLE):
    return text.format(p=prompt)


def only_row(tmp_path, text):
    report = read(tmp_path, put(tmp_path, "run.log", text))
    (found,) = read_bundle(Path(report.runs[0].bundle)).measurements
    return found, report


@pytest.mark.parametrize("prompt", [PROMPT, ""])
def test_a_sample_is_a_measurement(tmp_path, prompt):
    found, report = only_row(tmp_path, log(prompt))
    assert (found.status, report.problems) == (Status.PASS, [])
    assert found.metrics == {"eager_ms": 4.5, "compiled_ms": 3.0, "speedup": 1.5}
    cell = found.cell
    assert (cell.suite, cell.model, cell.dtype, cell.device) == ("graphnet", "timm/resnet18", "float32", "cuda")
    assert (cell.config, cell.batch_size) == (Config(), 0)
    kept = found.details["imported"]["graphnet"]
    assert (kept["record"]["config"]["warmup"], kept["values"]["Speedup.gpu"]) == ("3", 1.7)


@pytest.mark.parametrize(
    "text",
    [
        SAMPLE.replace("06]: 1 1", "06]: 1 0"),  # beyond the usual tolerance
        SAMPLE.replace("match:True", "match:False"),  # other data types
        "".join(line for line in SAMPLE.splitlines(keepends=True) if "all_close" not in line),  # equality counts
    ],
)
def test_outputs_that_differ_fail(tmp_path, text):
    found, _ = only_row(tmp_path, log(text=text))
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.exception.endswith("differ")


def test_a_failure_after_eager_ran_is_no_failure_of_eager(tmp_path):
    head = SAMPLE.split("{p}[Performance][compiled]")[0]
    found, _ = only_row(tmp_path, log(text=head + "{p}[Result] status: failed\n"))
    assert (found.status, found.metrics) == (Status.FAIL_TO_RUN, {"eager_ms": 4.5})
    before = SAMPLE.split("{p}[Datatype]")[0]
    found, _ = only_row(tmp_path / "b", log(text=before + "{p}[Result] status: failed\n"))
    assert (found.status, found.metrics) == (Status.EAGER_FAIL, {})
    found, _ = only_row(tmp_path / "c", log(text=SAMPLE.split("{p}[Result]")[0]))
    assert found.status is Status.CRASHED


UPLOADED = {
    "timestamp": 1_785_000_000,
    "head_branch": "main",
    "head_sha": "e5" * 20,
    "repo": "pytorch/pytorch",
    "workflow_id": 123,
    "run_attempt": 1,
    "runners": [{"type": "linux.aws.h100", "gpu_info": "A GPU", "gpu_count": 1}],
    "dependencies": {"triton": {"repo": "triton-lang/triton", "sha": "f" * 40, "version": "3.6"}},
}
EXACT = 1.9123451234567
NOBODY = Provenance()


def runs(report):
    return [read_bundle(Path(run.bundle)) for run in report.runs]


def only(report):
    (run,) = runs(report)
    (found,) = run.measurements
    return found


def uploaded(metric, *values, **changes):
    return record(metric, *values, **(UPLOADED | changes))


def kept(found):
    return found.details["imported"]["performance"]


def imported(folder, *records, asked=ASKED):
    return read(folder, lines(folder, "x.json", *records), asked=asked)


def test_the_records_of_a_row_are_one_measurement(tmp_path):
    records = (record("speedup", EXACT), record("abs_latency", 3.0, 1.0, 2.5), record("speedup", 1.6))
    (run,) = runs(read(tmp_path, lines(tmp_path, f"{STEM}_performance.json", *records)))
    found, again = run.measurements  # a metric that comes again begins a new one
    assert (again.replicate, again.metrics) == (1, {"speedup": 1.6})
    assert found.metrics == {"speedup": EXACT, "compiled_ms": 2.5}
    assert found.samples["compiled_ms"] == [3.0, 1.0, 2.5]
    assert (found.cell.suite, found.cell.config) == ("torchbench", Config(template="cudagraphs"))


def test_a_table_and_its_json_are_one_measurement(tmp_path):
    json_file = lines(tmp_path, f"{STEM}_performance.json", record("speedup", EXACT), record("abs_latency", 12.345678))
    found = only(read(tmp_path, table(tmp_path, "performance", PERFORMANCE, GOOD), json_file))
    assert (found.metrics["speedup"], found.cell.batch_size) == (EXACT, 16)  # of which the records tell no batch
    assert kept(found)["table"]["calls_captured"] == 315  # what the JSON lacks
    assert kept(found)["notes"] == [f"also {STEM}_performance.csv:2"]
    accuracy = (
        table(tmp_path, "accuracy", ACCURACY, "cuda,hf_Bert_large,4,fail_accuracy,1,1,0,0,0,0,0,3.5"),
        lines(tmp_path, f"{STEM}_accuracy.json", record("accuracy", "fail_accuracy", flags={"accuracy": True})),
    )
    found = only(read(tmp_path, *accuracy))
    assert (found.status, found.cell.batch_size) == (Status.FAIL_ACCURACY, 4)
    again = FAILED.replace("timm_vit_x", "hf_Bert_large")
    performance = (
        table(tmp_path, "performance", PERFORMANCE, again, GOOD),
        lines(tmp_path, f"{STEM}_performance.json", record("speedup", EXACT)),
    )
    (run,) = runs(read(tmp_path, *performance))
    assert [item.metrics.get("speedup") for item in run.measurements] == [None, EXACT]


def test_commit_branch_date_and_runner_come_from_the_uploader(tmp_path):
    # The caller's date is that of every measurement.
    assert only(imported(tmp_path / "dated", uploaded("speedup", 1.5))).started_at == "2026-08-01T02:00:00+00:00"
    (run,) = runs(imported(tmp_path, uploaded("speedup", 1.5), asked=NOBODY))
    header = run.header
    assert (header.commit, header.branch, header.repo) == ("e5" * 20, "main", "pytorch/pytorch")
    assert header.started_at == "2026-07-25T17:20:00+00:00"
    assert (header.testbed["runner"], header.testbed["gpu"]) == ("linux.aws.h100", "A GPU")
    (environment,) = run.environments.values()
    assert environment["dependencies.triton.version"] == "3.6"
    # Another commit, branch, repository or workflow is another run.
    others = {"head_sha": "b2" * 20, "head_branch": "other", "repo": "other/pytorch", "workflow_id": 2}
    records = [uploaded("speedup", 1.5), *(uploaded("speedup", 1.5, **{name: other}) for name, other in others.items())]
    assert len(runs(imported(tmp_path / "several", *records, asked=NOBODY))) == 5


def test_shards_of_a_workflow_are_one_run_and_a_later_attempt_counts(tmp_path):
    records = [
        uploaded("speedup", 1.9, run_attempt=2, job_id=9),
        uploaded("speedup", 1.5, job_id=1),
        uploaded("speedup", 1.7, job_id=2, model="other"),
    ]
    (run,) = runs(imported(tmp_path, *records, asked=NOBODY))
    assert (run.header.attempt, len(run.measurements)) == (2, 3)
    found = [(item.replicate, item.metrics["speedup"]) for item in run.measurements if item.cell.model != "other"]
    assert found == [(0, 1.5), (1, 1.9)]


def test_instruction_counts_of_pr_time_benchmarks_are_kept(tmp_path):
    item = {
        "benchmark": {"name": "pr_time_benchmarks", "mode": "", "extra_info": {"is_dynamic": False, "device": "cpu"}},
        "model": {"name": "add_loop_eager", "type": "compile_time", "backend": "eager"},
        "metric": {"name": "compile_time_instruction_count", "benchmark_values": [28e8], "target_value": 29e8},
    }
    found = only(read(tmp_path, put(tmp_path, "x.json", json.dumps([item]))))
    assert (found.cell.suite, found.cell.model, found.status) == ("pr_time_benchmarks", "add_loop_eager", Status.PASS)
    assert kept(found)["values"] == {"compile_time_instruction_count": 28e8}


def test_a_bad_line_costs_that_line_alone(tmp_path):
    empty = {"metric": {"name": "speedup", "benchmark_values": []}, "model": {"name": "m"}, "benchmark": {}}
    bad = ["{", "[1, 2]", "[" * 100_000, "1" * 5000, json.dumps(empty)]
    report = read(tmp_path, put(tmp_path, "x.json", "\n".join([json.dumps(record("speedup", 1.5)), *bad, ""])))
    assert only(report).metrics == {"speedup": 1.5}
    assert sorted(line.partition(": ")[0] for line in report.problems) == [f"x.json:{number}" for number in range(2, 7)]
    assert "\n" not in "".join(report.problems)


@pytest.mark.parametrize("value", [float("nan"), -1.0, 0.0, 10**400, True, None, {"a": 1}])
def test_values_that_are_no_measurement_stay_evidence(tmp_path, value):
    found = only(imported(tmp_path, record("speedup", value), record("abs_latency", 2.0)))
    assert "speedup" not in found.metrics and "speedup" in kept(found)["values"]
    found = only(imported(tmp_path / "b", record("speedup", 1.5), record("abs_latency", value)))
    assert (found.metrics, "abs_latency" in kept(found)["values"]) == ({"speedup": 1.5}, True)


@pytest.mark.parametrize("moment", [-5, 1e300, float("nan"), "0001-01-01", [1]])
def test_a_moment_that_is_none_is_evidence_where_the_caller_knows_better(tmp_path, moment):
    found = only(imported(tmp_path, uploaded("speedup", 1.5, timestamp=moment)))
    assert found.started_at == "2026-08-01T02:00:00+00:00" and "timestamp" in kept(found)["record"]
    unknown = imported(tmp_path, uploaded("speedup", 1.5, timestamp=moment), asked=NOBODY)
    assert unknown.is_empty and "--date" in unknown.problems[0]

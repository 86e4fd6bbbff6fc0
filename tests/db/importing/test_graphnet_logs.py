"""GraphNet's logs: lines as method and sources tell them; every number here is made up."""

from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Config, Status
from tests.db.importing.foreign import put, read

PROMPT = "graph-net-test-compiler-log "
SAMPLE = """\
{p}[Processing] /somewhere/samples/timm/resnet18
{p}[Config] model: resnet18
{p}[Config] device: cuda
{p}[Config] hardware: A GPU
{p}[Config] compiler: inductor
{p}[Config] warmup: 3
{p}[Config] compile_framework_version: 2.13.0
some other words
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


def only(tmp_path, text):
    report = read(tmp_path, put(tmp_path, "run.log", text))
    (found,) = read_bundle(Path(report.runs[0].bundle)).measurements
    return found, report


@pytest.mark.parametrize("prompt", [PROMPT, "graph-net-bench-log ", ""])
def test_a_sample_is_a_measurement(tmp_path, prompt):
    found, report = only(tmp_path, log(prompt))
    assert found.status is Status.PASS
    assert found.metrics == {"eager_ms": 4.5, "compiled_ms": 3.0, "speedup": 1.5}
    cell = found.cell
    assert (cell.suite, cell.model, cell.dtype, cell.device) == ("graphnet", "timm/resnet18", "float32", "cuda")
    assert (cell.config, cell.batch_size) == (Config(), 0)
    assert report.problems == []


def test_everything_else_that_the_log_says_is_kept(tmp_path):
    found, _ = only(tmp_path, log())
    kept = found.details["imported"]["graphnet"]
    assert kept["record"]["performance"]["compiled"]["gpu"]["median"] == 2.5
    assert kept["record"]["config"]["warmup"] == "3"
    assert kept["values"]["Speedup.gpu"] == 1.7
    assert kept["values"]["Correctness.equal"] == "0 0"


@pytest.mark.parametrize(
    "text",
    [
        SAMPLE.replace("06]: 1 1", "06]: 1 0"),  # beyond the usual tolerance
        SAMPLE.replace("match:True", "match:False"),  # other data types
        "".join(line for line in SAMPLE.splitlines(keepends=True) if "all_close" not in line),  # equality counts
    ],
)
def test_outputs_that_differ_fail(tmp_path, text):
    found, _ = only(tmp_path, log(text=text))
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.exception.endswith("differ")


def test_a_failure_after_eager_ran_is_no_failure_of_eager(tmp_path):
    head = SAMPLE.split("{p}[Performance][compiled]")[0]
    found, _ = only(tmp_path, log(text=head + "{p}[Result] status: failed\n"))
    assert (found.status, found.metrics) == (Status.FAIL_TO_RUN, {"eager_ms": 4.5})
    before = SAMPLE.split("{p}[Datatype]")[0]
    found, _ = only(tmp_path / "b", log(text=before + "{p}[Result] status: failed\n"))
    assert (found.status, found.metrics) == (Status.EAGER_FAIL, {})


def test_a_log_that_ends_early_is_no_pass(tmp_path):
    found, _ = only(tmp_path, log(text=SAMPLE.split("{p}[Result]")[0]))
    assert found.status is Status.CRASHED


def test_samples_follow_one_another(tmp_path):
    report = read(tmp_path, put(tmp_path, "run.log", log() + log().replace("resnet18", "vgg16")))
    assert report.files[0].rows == 2
    assert report.runs[0].statuses == {"pass": 2}


def test_statistics_that_are_no_json_are_reported_and_kept(tmp_path):
    found, report = only(tmp_path, log(text=SAMPLE.replace('{{"e2e": {{"median": 4.5', '{{"e2e": {{"median" 4.5')))
    assert "eager_ms" not in found.metrics
    assert len(report.problems) == 1 and report.problems[0].startswith("run.log:14: ")
    assert "4.5" in found.details["imported"]["graphnet"]["record"]["performance"]["eager"]

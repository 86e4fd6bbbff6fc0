"""Tables of benchmarks/dynamo, through the whole import: every header, padding and damage; and the files' names."""

from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Config, Phase, Status
from collector.zoo.registry import all_models, find
from db.importing.pytorch_names import TORCHVISION, Given
from db.importing.result_files import parse_name
from tests.db.importing.foreign import ACCURACY, FAILED, GOOD, PERFORMANCE, STEM, put, read, table


def measured(report):
    """The measurements of all runs by model."""
    return {item.cell.model: item for run in report.runs for item in read_bundle(Path(run.bundle)).measurements}


def timed(folder, *rows, header=PERFORMANCE, **changes):
    """What a table of performance with these rows becomes."""
    return measured(read(folder, table(folder, "performance", header, *rows, **changes)))


def told(found):
    return found.details["imported"]["performance"]["values"]


def test_a_row_becomes_a_measurement_with_units_of_ours(tmp_path):
    both = timed(tmp_path, GOOD, FAILED)
    found = both["hf_Bert_large"]
    assert found.status is Status.PASS
    assert found.metrics == {
        **{"speedup": 1.912345, "compiled_ms": 12.345678, "compile_cold_s": 25.123456, "compression": 0.998765},
        **{"eager_peak_bytes": 6_123_456_000, "compiled_peak_bytes": 6_131_028_000},
        **{"graphs": 2, "graph_breaks": 1, "cudagraph_skips": 3},
    }
    cell = found.cell
    assert (cell.suite, cell.phase, cell.dtype, cell.device) == ("torchbench", Phase.INFERENCE, "bfloat16", "cuda")
    assert (cell.batch_size, cell.config) == (16, Config(template="cudagraphs"))
    assert found.details["imported"]["performance"]["from"] == f"{STEM}_performance.csv:2"
    failed = both["timm_vit_x"]  # a speedup of zero is a failure and no number
    assert (failed.status, failed.metrics) == (Status.FAIL_TO_RUN, {})
    assert failed.failure is not None and "speedup 0" in failed.failure.message
    assert told(failed) == {"speedup": 0.0, "abs_latency": 0.0}


@pytest.mark.parametrize(("suite", "named"), [("timm_models", "beit_base_patch16_224"), ("torchbench", "resnet18")])
def test_rows_of_pytorchs_lists_land_on_models_of_the_zoo(tmp_path, suite, named):
    stem = STEM.replace("torchbench", suite)
    rows = [GOOD.replace("hf_Bert_large", name) for name in (named, "of_no_zoo")]
    found = timed(tmp_path, *rows, stem=stem)
    cell = found[named].cell
    assert find(cell.suite, cell.model).supports(cell.phase, cell.device, cell.dtype)
    assert {spec.name for spec in all_models() if spec.suite == "torchvision"} == TORCHVISION
    assert found["of_no_zoo"].cell.suite == {"timm_models": "timm"}.get(suite, suite)


def test_unknown_columns_and_longer_rows_are_kept(tmp_path):
    header = "dev,name,batch_size,tag,speedup,abs_latency,speedup_vs_baseline,brand_new"
    found = timed(tmp_path, "cuda,resnet18,512,nightly,1.5,2.0,1.2,some text", header=header)["resnet18"]
    assert told(found).items() >= {"tag": "nightly", "speedup_vs_baseline": 1.2, "brand_new": "some text"}.items()
    assert found.metrics == {"speedup": 1.5, "compiled_ms": 2.0}
    found = timed(tmp_path / "b", GOOD + ",7,eight")
    assert told(found["hf_Bert_large"])["column_18"] == "eight"


def test_a_row_that_was_cut_off_is_reported_and_no_pass(tmp_path):
    report = read(tmp_path, table(tmp_path, "performance", PERFORMANCE, GOOD, "cuda,cut,4,1.5,2.0", "cuda,cut"))
    assert set(measured(report)) == {"hf_Bert_large"}
    cut = [
        f"{STEM}_performance.csv:{line}: cut off after {count} of 16 columns: left out"
        for line, count in ((3, 5), (4, 2))
    ]
    assert report.problems == cut
    untimed = timed(tmp_path / "b", "cuda,untimed,4,0.98", header="dev,name,batch_size,compression_ratio")["untimed"]
    assert untimed.status is Status.SKIPPED


def test_accuracy_decides_the_status_and_performance_gives_numbers(tmp_path):
    accuracy = ("cuda,hf_Bert_large,4,fail_accuracy,315,2,1,1,0,0,3,31.2", "cuda,timm_vit_x,0,OOM,0,0,0,0,0,0,0,0")
    paths = (
        table(tmp_path, "performance", PERFORMANCE, GOOD, FAILED),
        table(tmp_path, "accuracy", ACCURACY, *accuracy),
    )
    report = read(tmp_path, *paths)
    found = measured(report)
    assert len(report.runs) == 1 and report.runs[0].measurements == 2
    bert, vit = found["hf_Bert_large"], found["timm_vit_x"]
    assert (bert.status, bert.metrics["speedup"]) == (Status.FAIL_ACCURACY, 1.912345)
    assert bert.cell.batch_size == 16  # the one that was timed
    assert (vit.status, vit.failure.exception) == (Status.OOM, "OOM")
    assert vit.metrics == {}  # the zeros are padding
    # An accuracy that passes hides no failed performance, and its compile time is another quantity.
    passed = table(tmp_path / "b", "accuracy", ACCURACY, "cuda,timm_vit_x,8,pass,1,1,0,0,0,0,0,3.5")
    found = measured(read(tmp_path / "b", paths[0], passed))["timm_vit_x"]
    assert (found.status, found.cell.batch_size) == (Status.FAIL_TO_RUN, 8)
    assert "compile_cold_s" not in found.metrics


def test_a_skipped_check_passes_where_the_model_was_timed(tmp_path):
    skipped = "cuda,hf_Bert_large,0,pass_due_to_skip,0,0,0,0,0,0,0,0"
    accuracy = table(tmp_path, "accuracy", ACCURACY, skipped)
    timed = table(tmp_path, "performance", PERFORMANCE, GOOD)
    assert measured(read(tmp_path / "a", accuracy, timed))["hf_Bert_large"].status is Status.PASS
    failed = table(tmp_path / "c", "performance", PERFORMANCE, FAILED.replace("timm_vit_x", "hf_Bert_large"))
    assert measured(read(tmp_path / "c", accuracy, failed))["hf_Bert_large"].status is Status.FAIL_TO_RUN
    alone = measured(read(tmp_path / "b", accuracy))["hf_Bert_large"]
    assert (alone.status, alone.metrics) == (Status.SKIPPED, {})


def test_an_open_quotation_mark_costs_what_follows_and_is_reported(tmp_path):
    rows = [f"cuda,m{number},4,1.5,2.0" for number in range(5)]
    rows[3] = 'cuda,"m3,4,1.5,2.0'  # the file was cut in a quoted field
    report = read(tmp_path, table(tmp_path, "performance", "dev,name,batch_size,speedup,abs_latency", *rows))
    assert set(measured(report)) == {"m0", "m1", "m2"}
    assert report.problems == [f"{STEM}_performance.csv:6: unexpected end of data: left out"]


def test_files_are_one_import_in_whatever_order_they_are_named(tmp_path):
    paths = [table(tmp_path, "performance", PERFORMANCE, GOOD, GOOD.replace("hf_Bert_large", "a"))]
    paths.append(table(tmp_path, "accuracy", ACCURACY, "cuda,hf_Bert_large,4,pass,1,1,0,0,0,0,0,3.5"))
    found = {read(tmp_path, *order).runs[0].run_id for order in (paths, paths[::-1], [tmp_path], [*paths, tmp_path])}
    assert len(found) == 1


def test_what_neither_file_nor_name_tells_is_asked_for_in_one_line_a_file(tmp_path):
    path = put(tmp_path, "mine.csv", "name,speedup\nbert,1.5\ngpt2,1.6\n")
    report = read(tmp_path, path)
    (problem,) = report.problems
    assert "no suite, phase, dtype or device in the file or its name: pass --suite" in problem
    given = Given("mine", "training", "amp", "cuda", Config(mode="max-autotune"))
    found = measured(read(tmp_path, path, given=given))["bert"].cell
    assert (found.suite, found.phase, found.config) == ("mine", "training", Config(mode="max-autotune"))


def test_names_tell_six_parts_and_line_ends_and_encodings_change_nothing(tmp_path):
    for config, end in (("inductor_with_cudagraphs_freezing_autotune", "_12345"), ("", "")):
        parts = [config, "timm_models", "amp", "training", "cuda_h100", "performance"]
        name = parse_name("_".join(filter(None, parts)) + end)
        assert [name.config, name.suite, name.dtype, name.mode, name.device, name.target] == parts
    for end, encoding in (("\n", "utf-8-sig"), ("\r\n", "utf-16"), ("\r", "utf-8")):
        path = put(tmp_path, f"{STEM}_performance.csv", f"{PERFORMANCE}{end}{GOOD}{end}".encode(encoding))
        assert measured(read(tmp_path, path))["hf_Bert_large"].metrics["graph_breaks"] == 1

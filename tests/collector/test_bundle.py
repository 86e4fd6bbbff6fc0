"""A bundle gives back every whole line that was written, however it was cut, and says what was lost."""

import gzip
import json

import pytest

from collector.bundle import FORMAT, read_bundle
from collector.usage_errors import BundleError
from tests.factories import ENVIRONMENT, at, cell, failing, header, passing, write_bundle

CELLS = [cell("bert"), cell("gpt2")]


def test_all_that_was_written_is_read_back_from_one_compressed_file(tmp_path):
    measured = [passing(CELLS[0]), failing(CELLS[1])]
    path = write_bundle(tmp_path, header("r1"), measured)
    found = read_bundle(path)
    assert (found.header, found.planned, found.measurements) == (header("r1"), CELLS, measured)
    assert (list(found.environments.values()), len(found.programs)) == ([ENVIRONMENT], 1)
    assert (found.finished_at, found.damage) == (at(600), [])
    assert [path.name for path in tmp_path.iterdir()] == ["r1.jsonl.gz"]
    records = [json.loads(line)["record"] for line in gzip.decompress(path.read_bytes()).splitlines()]
    items = ["environment", "program", "measurement", "measurement"]  # what both share is written once
    assert records == ["run", "planned", "planned", *items, "end"]
    assert write_bundle(tmp_path / "again", header("r1"), measured).read_bytes() == path.read_bytes()


def test_a_broken_compressed_bundle_is_damaged_and_keeps_its_lines(tmp_path):
    path = write_bundle(tmp_path, header("r1"), [passing(cell(f"m{number}")) for number in range(40)])
    whole = path.read_bytes()
    for share in (0.5, 0.9, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        found = read_bundle(path)
        assert "the compressed stream ends early" in found.damage
        assert (found.header.run_id, found.finished_at) == ("r1", None)
        assert len(found.planned) > 0
    path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 0xFF]) + whole[-5:])  # in the checksum
    assert read_bundle(path).damage


@pytest.mark.parametrize(
    "line",
    [
        *(b"not json", b"[1, 2]", b'{"record": "surprise"}', b"\xff\xfe", b"[" * 200_000),
        b'{"record": "planned", "cell": {"suite": "x"}}',
        b'{"record": "measurement", "cell": {"suite": "s", "model": "m", "phase": "inference", "dtype": "amp", '
        b'"device": "cpu", "batch_size": 1e999, "config": {}}, "status": "pass", "started_at": "", "wall_s": 1}',
    ],
)
def test_a_line_that_is_no_record_is_damage_and_the_rest_is_read(tmp_path, line):
    path = write_bundle(tmp_path, header("r1"), [passing(CELLS[0]), failing(CELLS[1])], closed=False)
    first, *lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, line, *lines]) + b"\n")
    found = read_bundle(path)
    assert len(found.measurements) == 2
    (damage,) = found.damage
    assert damage.startswith("line 2 is not a record")


@pytest.mark.parametrize(
    ("version", "device", "dtype", "now"),
    [
        *((1, "cuda", "amp", "amp_bfloat16"), (1, "cuda", "amp_float16", "amp")),
        *((1, "cpu", "amp", "amp"), (2, "cuda", "amp", "amp")),
    ],
)
def test_amp_of_the_first_format_keeps_its_meaning(tmp_path, version, device, dtype, now):
    planned = {"record": "planned", "cell": cell(dtype=dtype, device=device).to_json()}
    first = {"record": "run", "format": version, **header("r1").to_json()}
    path = tmp_path / "old.jsonl"
    path.write_text(f"{json.dumps(first)}\n{json.dumps(planned)}\n")
    assert [cell.dtype for cell in read_bundle(path).planned] == [now]


COLD, NOW = {"compile_cold_s": 9.0}, {"compile_cold_s": 9.0, "tuning_s": 1.0}
WHILE_COMPILING, WHILE_RUNNING = {"autotune_while_compiling": 1e-4}, {"autotune_while_running": 0.3}


def read_back(folder, metrics, **details):
    """The measurement of a bundle whose only cell has these metrics and details."""
    item = passing(CELLS[0], samples={}, metrics=dict(metrics), details=details)
    return read_bundle(write_bundle(folder, header("r1"), [item])).measurements[0]


@pytest.mark.parametrize(
    ("metrics", "phases", "now", "detail"),
    [
        (COLD, {"dynamo": 9.0}, COLD | {"tuning_s": 0.0}, None),
        (COLD, WHILE_COMPILING, COLD | {"tuning_s": 0.0}, None),
        (COLD | {"compile_instructions": 5.0}, WHILE_RUNNING, {}, 9.0),
        ({"compiled_ms": 2.0}, WHILE_RUNNING, {"compiled_ms": 2.0}, None),  # with shared results
        (NOW, WHILE_RUNNING, NOW, None),
    ],
)
def test_a_compile_time_that_holds_tuning_is_none(tmp_path, metrics, phases, now, detail):
    found = read_back(tmp_path, metrics, compile_cpu_s=8.0, compile_phases_s=phases)
    assert (found.metrics, found.details.get("compile_with_tuning_s")) == (now, detail)


TUNED = {"kernels_found": 0, "kernels_tuned": 4, "operations_found": 0}


@pytest.mark.parametrize(
    ("shared", "is_judged"),
    [
        (TUNED, True),
        ({"not_kept": "OSError: full"}, True),
        (TUNED | {"kernels_tuned": 0, "operations_found": 3}, False),
        (TUNED | {"candidates_of": 1}, False),
    ],
)
def test_a_cell_that_took_choices_of_another_has_no_tuning_time(tmp_path, shared, is_judged):
    found = read_back(tmp_path, NOW, compile_phases_s=WHILE_RUNNING, shared_tuning=dict(shared))
    for again in ("copied", "copied again"):
        assert found.metrics == (NOW if is_judged else COLD)
        assert found.details["shared_tuning"].get("spent_s") == (None if is_judged else 1.0)
        found = read_back(tmp_path / again, found.metrics, **found.details)


NEWER = json.dumps({"record": "run", "format": FORMAT + 1, **header("r1").to_json()}).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (NEWER, "update inductor-watch"),
        *((b"", "odd"), (b'{"record": "planned"}\n', "odd"), (b'{"record": "run", "format": 1}\n', "odd")),
        *((b"\x1f\x8b", "odd"), (b"[" * 200_000 + b"\n", "odd"), (b'{"record": "run", "format": 1e999}\n', "odd")),
    ],
)
def test_what_is_no_bundle_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=said) as caught:
        read_bundle(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)

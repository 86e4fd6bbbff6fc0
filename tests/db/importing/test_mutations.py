"""Files scratched anywhere: nothing but lines of error, and every row that is still whole is imported."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.bundle import read_bundle
from db.importing.importer import store
from tests.db.importing.foreign import ACCURACY, PERFORMANCE, STEM, put, read, record
from tests.factories import new_store

REUSED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ROWS = [f"cuda,m{n},16,1.{n}12345,12.345678,25.1,0.99,6.12,6.13,315,{n},1,1,0,0,3" for n in range(8)]
TABLE = "\n".join([PERFORMANCE, *ROWS]).encode() + b"\n"
CHECKED = "\n".join([ACCURACY, *(f"cuda,m{n},4,pass,3,1,0,0,0,0,0,3.5" for n in range(8))]).encode() + b"\n"
RECORDS = [record(name, value, model=f"m{n}") for n in range(8) for name, value in (("speedup", 1.5), ("tag", "x"))]
PHASES = b"dev,name,batch_size,gc,wait\n" + b"".join(
    b"cuda,m%d,4,0.500000,0\ncuda,n%d,4,0,0\n" % (n, n) for n in range(8)
)
LINES = b"".join(json.dumps(item).encode() + b"\n" for item in RECORDS)
ARRAY = json.dumps(RECORDS).encode()
LOG = b"".join(
    b"[Processing] samples/a/m%d\n[Config] device: cuda\n[DataType] float32\n[Result] status: success\n" % n
    for n in range(8)
)


def scratched(data: bytes, seed: int) -> bytes:
    """The data with some bytes replaced, taken away, doubled or cut off."""
    rng = random.Random(seed)
    found = bytearray(data)
    for _ in range(rng.randint(1, 12)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0:
                found[at : at + 1] = bytes([rng.choice(b'"\x00\xff,\n\r{}[]:0-e\\<\xf0')])
            case 1:
                del found[at : at + rng.randint(1, 40)]
            case 2:
                found[at:at] = found[max(0, at - 60) : at]
            case _:
                found[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 9)))
    return bytes(found)


@pytest.fixture
def fresh(tmp_path):
    """A new, empty folder at every call."""
    numbers = iter(range(10**6))
    return lambda: tmp_path / str(next(numbers))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (f"{STEM}_performance.csv", TABLE),
        (f"{STEM}_accuracy.csv", CHECKED),
        (f"{STEM}_performance_compilation_metrics.csv", PHASES),
        (f"{STEM}_performance.json", LINES),
        ("array.json", ARRAY),
        ("run.log", LOG),
    ],
)
@REUSED
@given(seed=st.integers(min_value=0, max_value=10**9))
def test_a_scratched_file_raises_nothing_and_says_lines(fresh, name, data, seed):
    folder = fresh()
    report = read(folder, put(folder, name, scratched(data, seed)))
    for line in [*report.problems, *(file.problem for file in report.files)]:
        assert "\n" not in line
    if report.is_empty:
        assert report.problems or report.files[0].problem
    for run in report.runs:
        assert read_bundle(Path(run.bundle)).damage == []


@REUSED
@given(seed=st.integers(min_value=0, max_value=10**9))
def test_rows_that_are_still_whole_survive(fresh, seed):
    """Changes a few lines of a table, each into anything, and looks for all the others."""
    rng = random.Random(seed)
    lines, hurt = TABLE.decode().splitlines(), set()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(1, len(lines))
        hurt.add(at)
        lines[at] = scratched(lines[at].encode(), rng.randrange(10**6)).decode("utf-8", "replace")
        lines[at] = lines[at].replace("\n", " ").replace("\r", " ")
        if lines[at].count('"') % 2:
            lines[at] += '"'  # a quotation over several lines is another test's
    folder = fresh()
    report = read(folder, put(folder, f"{STEM}_performance.csv", "\n".join(lines) + "\n"))
    found = {item.metrics.get("speedup") for run in report.runs for item in read_bundle(Path(run.bundle)).measurements}
    for at in set(range(1, len(lines))) - hurt:
        assert float(lines[at].split(",")[3]) in found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PLACES = (
    *("benchmark", "model", "metric", "benchmark.name", "benchmark.mode", "benchmark.dtype", "benchmark.extra_info"),
    *("model.name", "model.backend", "model.origins", "metric.name", "metric.benchmark_values", "metric.extra_info"),
    *("timestamp", "head_sha", "head_branch", "repo", "workflow_id", "run_attempt", "runners", "dependencies"),
    *("benchmark.extra_info.device", "benchmark.extra_info.batch_size", "benchmark.extra_info.inductor_config"),
    *("benchmark.extra_info.disable_cudagraphs", "benchmark.extra_info.output", "benchmark.extra_info.quantization"),
)


@settings(REUSED, max_examples=25)
@given(place=st.sampled_from(PLACES), value=JSON)
def test_any_json_in_any_field_costs_at_most_its_own_record(fresh, place, value):
    good, bad = record("speedup", 1.5, model="good"), record("speedup", 1.6, model="bad")
    target = bad
    *path, last = place.split(".")
    for step in path:
        target = target[step]
    target[last] = value
    folder = fresh()
    report = read(folder, put(folder, "x.json", json.dumps(good) + "\n" + json.dumps(bad) + "\n"))
    engine = new_store(folder / "s.db")
    store(engine, report)
    engine.dispose()
    measured = [item for run in report.runs for item in read_bundle(Path(run.bundle)).measurements]
    assert [item.metrics for item in measured if item.cell.model == "good"] == [{"speedup": 1.5}]
    assert len(measured) == 2 or report.problems

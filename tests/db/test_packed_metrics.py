"""Columns of metrics come back bit for bit, whichever way they are kept, and take no more bytes than they have to."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.metrics import METRICS
from db.ingest import ingest_bundle
from db.packing.packed_metrics import KERNEL, OTHERS, UnreadableError, pack, unpack
from db.queries import cells as queries
from db.schema import HISTORY_METRICS
from tests.factories import cell, header, passing, write_bundle

NAN = float("nan")
#: The columns that every row has, and that the migration to schema 0005 writes: the format began with them.
FIRST = OTHERS[:15]
HEAD = 3 + len(FIRST)
#: Around every limit of a way to keep a number, and of no way but the widest.
NUMBERS = st.one_of(
    st.just(NAN),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 254.0, 255.0, 65534.0, 65535.0, 2.0**32 - 2, 2.0**32 - 1, 2.0**32, 0.5]),
    st.integers(0, 2**34).map(lambda number: number * 512.0),
    st.floats(allow_nan=False, allow_infinity=False),
)


def columns_of(**given):
    """All columns, NaN where none is given."""
    count = len(next(iter(given.values())))
    return {name: np.array(given.get(name, [NAN] * count), dtype=float) for name in (*OTHERS, KERNEL)}


def there_and_back(*parts):
    """The columns of several rows, packed and read together."""
    counts = np.array([len(part[KERNEL]) for part in parts])
    kernel = np.concatenate([part[KERNEL] for part in parts])
    return unpack([pack(part) for part in parts], counts, kernel, OTHERS)


def bits(values):
    return [None if value != value else np.float64(value).view(np.int64).item() for value in values]


@st.composite
def parts(draw):
    count = draw(st.integers(1, 24))
    columns = st.one_of(st.lists(NUMBERS, min_size=count, max_size=count), NUMBERS.map(lambda value: [value] * count))
    found = columns_of(**{name: draw(columns) for name in (*OTHERS, KERNEL)})
    if draw(st.booleans()):  # as they are where nothing was lost on the way
        with np.errstate(all="ignore"):
            ratio = found["eager_kernel_ms"] / found[KERNEL]
        found["device_speedup"] = np.where(np.isfinite(ratio), ratio, np.nan)
    return found


def test_every_metric_is_packed_in_one_place():
    assert sorted((*OTHERS, *HISTORY_METRICS)) == sorted((*METRICS, "throttled"))


@settings(max_examples=60, deadline=None)
@given(st.lists(parts(), min_size=1, max_size=4))
def test_any_numbers_come_back_bit_for_bit(some):
    found = there_and_back(*some)
    for name in OTHERS:
        assert bits(found[name]) == bits(np.concatenate([part[name] for part in some])), name


@settings(max_examples=60, deadline=None)
@given(parts())
def test_the_migration_packs_as_ingest_does_and_reads_what_it_packed(columns):
    migration = import_module("db.migrations.versions.v0005_metrics")
    columns = columns_of(**{name: columns[name] for name in (*FIRST, KERNEL)})  # what there was when it was written
    plain = {name: [None if value != value else value for value in values.tolist()] for name, values in columns.items()}
    rest = {name: plain.get(name, [None] * len(columns[KERNEL])) for name in METRICS}
    assert migration._pack(rest) == pack(columns)
    back = migration._unpack(pack(columns), {KERNEL: plain[KERNEL]})
    assert {name: bits([NAN if v is None else v for v in back[name]]) for name in FIRST} == {
        name: bits(columns[name]) for name in FIRST
    }
    later = pack(columns | {"compile_instructions": np.full(len(columns[KERNEL]), 5e9)})
    assert migration._unpack(later, {KERNEL: plain[KERNEL]}) == back


@settings(max_examples=60, deadline=None)
@given(parts(), st.integers(0, 31), st.booleans())
def test_an_upgrade_adds_why_the_gpu_was_held_back_as_ingest_does_and_takes_it_away_again(columns, reasons, same):
    migration = import_module("db.migrations.versions.v0006_tags")
    count = len(columns[KERNEL])
    told = [reasons if same or place % 2 else 255 for place in range(count)]
    bare = pack(columns | {"throttled": np.full(count, NAN)})
    full = pack(columns | {"throttled": np.array([NAN if value == 255 else value for value in told], dtype=float)})
    if set(told) != {255}:
        assert migration._with(bare, told) == full
    assert full == bare or migration._without(full) == bare


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([NAN] * 12, 0),
        ([3.0] * 12, 8),
        ([3.0] * 2, 2),
        ([float(n) for n in range(12)], 12),
        ([254.0] + [NAN] * 11, 12),
        ([255.0] + [NAN] * 11, 24),
        ([65535.0] + [NAN] * 11, 48),
        ([2.0**40, 2.0**40 + 512] + [NAN] * 10, 48),
        ([2.0**40, 2.0**40 + 1] + [NAN] * 10, 96),
        ([-0.0] + [0.0] * 11, 96),
        ([0.1] + [NAN] * 11, 96),
    ],
)
def test_a_column_takes_the_bytes_that_its_numbers_need(values, size):
    columns = columns_of(graphs=values)
    assert len(pack(columns)) == HEAD + size
    assert bits(there_and_back(columns)["graphs"]) == bits(values)


def test_a_ratio_of_what_is_there_takes_no_bytes_and_one_that_is_off_by_a_bit_does():
    over, under = np.array([1.0, 2.0, NAN]), np.array([3.0, 7.0, 5.0])
    exact = columns_of(eager_kernel_ms=over, compiled_kernel_ms=under, device_speedup=over / under)
    off = exact | {"device_speedup": np.nextafter(over / under, 1)}
    assert len(pack(off)) - len(pack(exact)) == 3 * 8
    for columns in (exact, off):
        assert bits(there_and_back(columns)["device_speedup"]) == bits(columns["device_speedup"])


def test_a_row_of_the_first_version_is_what_it_was_and_a_later_metric_lengthens_it():
    """The bytes are those that inductor-watch 0.1.0 wrote before it knew a sixteenth column."""
    columns = columns_of(eager_ms=[0.5], graphs=[2.0], cosine=[0.25])
    first = bytes.fromhex("01010f" + "07" + 5 * "00" + "03" + 7 * "00" + "07" + "000000000000e03f02000000000000d03f")
    assert pack(columns) == first
    longer = pack(columns | {"compile_warm_s": np.array([0.125])})
    assert (longer[2], len(longer)) == (17, len(first) + 2 + 8)
    found = unpack([first, longer], np.array([1, 1]), np.array([NAN, NAN]), OTHERS)
    assert bits(found["compile_warm_s"]) == bits([NAN, 0.125])
    assert found["cosine"].tolist() == [0.25, 0.25]


def test_of_a_row_with_metrics_of_a_later_version_those_are_passed_over():
    data = pack(columns_of(eager_ms=[0.5], cosine=[0.25]))
    known = b"\x00" * (len(OTHERS) - len(FIRST))
    longer = bytes([1, 1, len(OTHERS) + 2]) + data[3:HEAD] + known + b"\x07\x01" + data[HEAD:] + bytes(8)
    found = unpack([longer, data], np.array([1, 1]), np.array([NAN, NAN]), OTHERS)
    assert (found["eager_ms"].tolist(), found["cosine"].tolist()) == ([0.5, 0.5], [0.25, 0.25])


def test_a_row_of_an_earlier_list_of_metrics_has_nothing_of_later_ones():
    data = pack(columns_of(eager_ms=[0.5]))
    fewer = bytes([1, 1, 1, data[3]]) + data[HEAD:]
    found = unpack([fewer], np.array([1]), np.array([NAN]), OTHERS)
    assert found["eager_ms"].tolist() == [0.5]
    assert np.isnan(found["cosine"]).all()


@pytest.mark.parametrize(
    "data", [b"", b"\x01\x01", b"\x02\x01\x00", b"\x01\x01\x01\x08", b"\x01\x01\x01\x01", b"\x01\x01\x40" + bytes(63)]
)
def test_bytes_of_no_format_are_refused(data):
    with pytest.raises(UnreadableError):
        unpack([data], np.array([1]), np.array([NAN]), OTHERS)


def test_metrics_of_models_of_every_kind_are_read_together(store, tmp_path):
    """Rows that are kept in several ways, one of them long, stand beside each other in a side and in a history."""
    sent = {}
    for number, model in enumerate(("bert", "t5", "gpt2")):
        for size in range(1, 28 if model == "bert" else 4):
            metrics = {"eager_ms": size / 7, "graphs": float(300**number), "eager_peak_bytes": 512.0 * size + number}
            sent[model, size] = metrics if size % 3 else {"graphs": 0.0}
    lines = [passing(cell(model, batch_size=size), metrics=found) for (model, size), found in sent.items()]
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), lines))
    rows = queries.side_rows(store, queries.resolve_side(store, "r1")).set_index(["model", "batch_size"])
    names = ("eager_ms", "graphs", "eager_peak_bytes")
    assert {key: bits(rows.loc[key, list(names)]) for key in sent} == {
        key: bits([found.get(name, NAN) for name in names]) for key, found in sent.items()
    }
    history = queries.model_history(store, "huggingface", "bert", metrics=names).set_index("batch_size").sort_index()
    assert bits(history["eager_ms"]) == bits([sent["bert", size].get("eager_ms", NAN) for size in range(1, 28)])

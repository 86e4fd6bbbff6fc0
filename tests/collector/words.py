"""Strategies: configs, cells and measurements as hypothesis draws them."""

from hypothesis import strategies as st

from collector.templates import TEMPLATES
from collector.vocabulary import BATCH_MARKED, DTYPES, MARKED, Cell, Config, Failure, Measurement, Phase, Stage, Status

FINITE = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
KEYS = st.sampled_from(["triton.cudagraphs", "graph_partition", "max_autotune_gemm_backends", "epilogue_fusion"])
#: Strings that JSON would not read as something else, and that hold no `+`.
SPELT = st.sampled_from(
    ["ATEN", "ATEN,TRITON", "CUTLASS,ATEN", "a=b", "x86 64", "-O3", "nan", "0x1f", '"', "[1]", "{}"]
)
#: A `+` separates the parts of a name; numbers that hold one have a test of their own.
VALUES = st.one_of(st.booleans(), st.integers(), FINITE.filter(lambda value: "+" not in str(value)), SPELT)

configs = st.builds(
    Config,
    backend=st.sampled_from(["inductor", "eager", "aot_eager"]),
    template=st.none() | st.sampled_from(sorted(TEMPLATES)),
    mode=st.none() | st.sampled_from(["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]),
    overrides=st.dictionaries(KEYS, VALUES, max_size=3),
    freezing=st.none() | st.booleans(),
    dynamic=st.none() | st.booleans() | st.sampled_from((MARKED, BATCH_MARKED)),
    fullgraph=st.booleans(),
)
cells = st.builds(
    Cell,
    suite=WORDS,
    model=WORDS,
    phase=st.sampled_from(list(Phase)),
    dtype=st.sampled_from(DTYPES),
    device=st.sampled_from(["cuda", "cpu"]),
    batch_size=st.integers(1, 4096),
    config=configs,
)
failures = st.builds(
    Failure, stage=st.sampled_from(list(Stage)), exception=WORDS, message=st.text(), hint=st.none() | st.text()
)
measurements = st.builds(
    Measurement,
    cell=cells,
    status=st.sampled_from(list(Status)),
    started_at=st.just("2026-08-01T02:00:00+00:00"),
    wall_s=FINITE,
    metrics=st.dictionaries(WORDS, FINITE, max_size=4),
    samples=st.dictionaries(WORDS, st.lists(FINITE, min_size=1, max_size=5), max_size=2),
    details=st.dictionaries(WORDS, st.text() | st.integers() | st.lists(st.text(), max_size=2), max_size=3),
    program_id=st.none() | WORDS,
    environment_id=st.none() | WORDS,
    failure=st.none() | failures,
    log_tail=st.none() | st.text(min_size=1),
    replicate=st.integers(0, 9),
)

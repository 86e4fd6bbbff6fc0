"""Configs as hypothesis draws them."""

from hypothesis import strategies as st

from collector.templates import TEMPLATES
from collector.vocabulary import BATCH_MARKED, MARKED, Config

KEYS = st.sampled_from(["triton.cudagraphs", "graph_partition", "max_autotune_gemm_backends", "epilogue_fusion"])
#: Strings that JSON would not read as something else, and that hold no `+`.
SPELT = st.sampled_from(
    ["ATEN", "ATEN,TRITON", "CUTLASS,ATEN", "a=b", "x86 64", "-O3", "nan", "0x1f", '"', "[1]", "{}"]
)
#: A `+` separates the parts of a name; numbers that hold one have a test of their own.
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: "+" not in str(value))
VALUES = st.one_of(st.booleans(), st.integers(), NUMBERS, SPELT)

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

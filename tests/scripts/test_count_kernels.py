"""Functions and calls in a generated program."""

from __future__ import annotations

from scripts.count_kernels import count

CODE = """
cpp_fused_a_0 = async_compile.cpp_pybinding(['const float*'], r''' ''')
cpp_fused_b_1 = async_compile.cpp_pybinding(['float*'], r''' ''')
def call(args):
    cpp_fused_a_0(x, y)
    kernels.cpp_fused_b_1(y)
    cpp_fused_a_0(y, z)
"""


def test_definitions_and_calls_are_told_apart():
    assert count(CODE) == (2, 3)

"""Generated code is known by its content: not by paths, comments or the numbers in kernels' names."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from collector.code import Code, pack_text, unpack_text
from collector.measure.generated_code import CodeLog

#: As Inductor writes it for a GPU, shortened.
WRAPPER = """
# AOT ID: ['0_inference']
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()


# kernel path: /tmp/torchinductor_ci/ab/cabc.py
# Topologically Sorted Source Nodes: [y, z], Original ATen: [aten.add, aten.relu]
# Source node to ATen node mapping:
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
import triton
@triton_heuristics.pointwise(
    size_hints={'x': 4096}, inductor_meta={'kernel_name': 'triton_poi_fused_add_relu_0', 'backend_hash': '0A1B2C'},
)
@triton.jit
def triton_poi_fused_add_relu_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    # a comment in the kernel
    tmp0 = tl.load(in_ptr0 + (x0), None)
    tmp1 = tmp0 / 2 + 1
    tl.store(out_ptr0 + (x0), tmp1, None)
''', device_str='cuda')


# kernel path: /tmp/torchinductor_ci/cd/ccde.py
# Topologically Sorted Source Nodes: [s], Original ATen: [aten.sum]
triton_red_fused_sum_1 = async_compile.triton('triton_red_fused_sum_1', '''
def triton_red_fused_sum_1(in_ptr0, out_ptr0):
    tl.store(out_ptr0, tl.sum(tl.load(in_ptr0), 1))
''', device_str='cuda')

async_compile.wait(globals())

def call(args):
    triton_poi_fused_add_relu_0.run(arg0_1, buf0, 4096, stream=stream0)
    triton_red_fused_sum_1.run(buf0, buf1, stream=stream0)
    return (buf1, )
"""
RED = "triton_red_fused_sum_1"


def code_of(*wrappers):
    log = CodeLog()
    for wrapper in wrappers:
        log.emit(logging.LogRecord("torch", logging.DEBUG, "", 0, "Output code: \n%s", (wrapper,), None))
    return log.take()


def test_a_wrapper_is_taken_apart_into_kernels_and_what_calls_them():
    code, texts = code_of(WRAPPER)
    (graph,) = code.graphs
    assert [kernel.name for kernel in graph.kernels] == ["triton_poi_fused_add_relu_0", RED]
    assert "Original ATen: [aten.add, aten.relu]" in graph.kernels[0].source
    assert len(texts) == 3
    assert "torchinductor_ci" not in "".join(texts.values())
    script = graph.script(texts)
    compile(script, "wrapper", "exec")
    assert "def triton_poi_fused_add_relu_0(in_ptr0" in script
    assert "    triton_red_fused_sum_1.run(buf0, buf1, stream=stream0)" in script
    assert Code.from_json(code.to_json()) == code


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torchinductor_ci", "torchinductor_other"),
        ("a comment in the kernel", "another comment"),
        ("0_inference", "7_inference"),
        ("'0A1B2C'", "'FFFF'"),
        ("Source Nodes: [s]", "Source Nodes: [s, t]"),
        (RED, "triton_red_fused_sum_2"),
    ],
)
def test_paths_comments_hashes_and_numbers_make_no_other_code(old, new):
    assert code_of(WRAPPER.replace(old, new))[0].code_id == code_of(WRAPPER)[0].code_id


@pytest.mark.parametrize(
    ("old", "new", "kernels"),
    [
        ("tmp0 / 2 + 1", "tmp0 / 2 + 2", [False, True]),
        ("4096, stream", "8192, stream", [True, True]),
        ("{'x': 4096}", "{'x': 8192}", [False, True]),
    ],
)
def test_another_program_is_other_code_and_the_kernels_that_stayed_are_known(old, new, kernels):
    before, after = code_of(WRAPPER)[0], code_of(WRAPPER.replace(old, new))[0]
    assert before.code_id != after.code_id
    same = [one.text_id == other.text_id for one, other in zip(before.kernels, after.kernels, strict=True)]
    assert same == kernels


def test_a_kernel_more_leaves_the_others_as_they_are():
    kernel, rest = WRAPPER[WRAPPER.index("\n# kernel path: /tmp/torchinductor_ci/cd") :].split("async_compile.wait")
    longer = WRAPPER.replace(RED, "triton_red_fused_sum_2").replace("async_compile.wait", f"{kernel}async_compile.wait")
    before, after = code_of(WRAPPER)[0], code_of(longer.replace("tl.sum", "tl.max", 1))[0]
    assert rest
    assert len(after.kernels) == 3
    assert {kernel.text_id for kernel in before.kernels} & {kernel.text_id for kernel in after.kernels}


def test_a_graph_that_is_logged_twice_counts_once_and_nothing_is_no_code():
    assert code_of(WRAPPER, WRAPPER)[0] == code_of(WRAPPER)[0]
    assert len(code_of(WRAPPER, WRAPPER.replace("0_inference", "1_inference"))[0].graphs) == 2
    assert code_of()[0] is None


def test_a_packed_text_is_read_back_and_damage_is_an_error():
    assert unpack_text(pack_text("x = 1\n" * 1000)) == "x = 1\n" * 1000
    with pytest.raises(ValueError, match="damaged"):
        unpack_text("bm8gemxpYg==")


_COMPILE = """
import torch
from collector.measure.generated_code import CodeLog
log = CodeLog().attach()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Softmax(-1))
torch.compile(model)(torch.ones(2, 8)).sum().backward()
code, texts = log.take()
for graph in code.graphs:
    compile(graph.script(texts), "wrapper", "exec")
print(code.code_id, len(code.graphs), len(code.kernels))
"""


def test_two_processes_with_other_caches_compile_to_the_same_code_and_print_none(tmp_path):
    told = []
    for name in ("one", "other", "one"):  # the third finds the graph in the first one's cache
        environ = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name)}
        done = subprocess.run([sys.executable, "-c", _COMPILE], capture_output=True, text=True, env=environ, check=True)
        told.append(done.stdout.split())
        assert "async_compile" not in done.stdout + done.stderr
    assert told[0] == told[1] == told[2]
    assert told[0][1] == "2"
    assert int(told[0][2]) >= 2

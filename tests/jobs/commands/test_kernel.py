"""`kernel` writes a script that runs one generated kernel of both sides alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from analysis.rerun import find_kernel, kernel_script
from collector.code import DEFINITION, KERNEL, Code, Graph, Kernel
from tests.command_line import call, tell
from tests.dashboard import stores
from tests.factories import cell, header, passing, write_bundle

SUM = "triton_red_fused_sum_"
EVIL = "XBLOCK: 8\nimport os"


def code(side, block):
    """The code of a side: a kernel that is launched twice, with a size that the wrapper computes, and a C++ one."""
    kernel, other, wrapper = (f"{name}{side:0>15}" for name in "kow")
    texts = {
        kernel: f"async_compile.triton('{KERNEL}', '''\ndef {KERNEL}(in_ptr0, out_ptr0, n): {block}\n''', device_str='cuda')",
        other: f"async_compile.cpp_pybinding(['float*'], r'''void {KERNEL}(){{}}''')",
        wrapper: f"""
{KERNEL}_{kernel} = {DEFINITION}
def call(args):
    x, s77 = args
    buf0 = empty_strided_cuda((s77*2, ), (1, ), torch.float32)
    {KERNEL}_{kernel}.run(x, buf0, s77, stream=stream0)
    {KERNEL}_{kernel}.run(x, buf0, 3, stream=stream0)
def get_args():
    s77 = 8
    x = rand_strided((8, 4), (4, 1), device='cuda:0', dtype=torch.bfloat16)
""",
    }
    kernels = (Kernel(f"{SUM}{side}", kernel), Kernel("cpp_fused_add_0", other))
    return Code(f"c0de{side}", (Graph(wrapper, kernels),)), texts


@pytest.fixture
def folder(tmp_path):
    bundles = []
    for number, name in enumerate(("n0", "n1"), 1):
        details = {"compiled_kernels": [[f"{SUM}{number}", 2, 0.5]], "autotuned": [[f"{SUM}{number}", 2, EVIL, 0.1]]}
        cells = [passing(cell(model), code_id=f"c0de{number}", details=details) for model in ("bert", "t5")]
        head = header(name, minutes=1440 * number)
        bundles.append(write_bundle(tmp_path, head, cells, codes=[code(number, f"return {number}")]))
    stores.store(tmp_path / "inductor-watch.db", bundles)
    return tmp_path


def test_a_script_has_the_kernel_of_both_sides_with_its_launch(folder):
    done = call("kernel", "n0", "n1", f"{SUM}2", "--model", "bert", "--out", "one.py", folder=folder)
    assert done.returncode == 0, tell(done)
    script = (folder / "one.py").read_text()
    ast.parse(script)
    for number, side in enumerate(("base", "new"), 1):
        assert f"{side}_kernel = async_compile.triton('{SUM}{number}'" in script
        assert f"def {SUM}{number}(in_ptr0, out_ptr0, n): return {number}" in script
        assert f"time_it('{side}', {side}_kernel, {side}_arguments(), '{SUM}{number}', 0.25)" in script
        assert f"of n{number - 1}, huggingface/bert" in script
    arguments = "tensor((8, 4), (4, 1), torch.bfloat16),\n    tensor((16,), (1,), torch.float32),\n    8,\n]"
    assert script.count(arguments) == 2
    assert "launched 2 x by the wrapper, with 2 sets of arguments" in script
    assert "\nimport os" not in script, "what a bundle says of a kernel stays a comment"


@pytest.mark.gpu
@pytest.mark.parametrize("function", ["x + 1", "x.sum(-1)", "x.softmax(-1)"])
def test_a_kernel_alone_takes_as_long_as_in_its_program(tmp_path, function):
    import torch

    from collector.measure.generated_code import CodeLog
    from collector.measure.timing import device_time, quietest_call, record

    torch.compiler.reset()
    log = CodeLog().attach()
    program = torch.compile(eval(f"lambda x: {function}"))  # noqa: S307 -- of the list above
    x = torch.randn(16384, 8192, device="cuda", dtype=torch.bfloat16)
    program(x)
    generated, texts = log.take()
    profiled = device_time(quietest_call([record(lambda: program(x), 5, "cuda")]))
    (name, launches, ms), *_ = profiled.kernels
    (path := tmp_path / "one.py").write_text(kernel_script([find_kernel("new", generated, texts, name)]))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300, check=True)
    print(f"{ms / launches:.4f} ms in the program; {done.stdout}")  # noqa: T201
    cold, warm = map(float, re.findall(r"([\d.]+) ms", done.stdout))
    assert cold == pytest.approx(ms / launches, rel=0.1) or warm == pytest.approx(ms / launches, rel=0.1)

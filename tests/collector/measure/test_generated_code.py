"""Generated code is known by its content: not by paths, comments or the numbers in kernels' names.

The lines of a model's source that Inductor's own records name for a kernel.
"""

import json
import logging

import pytest
import torch
from torch._inductor.kernel.custom_op import CustomOpConfig, register_custom_op_autotuning

from collector.code import KERNEL, Code, Graph, Kernel, TensorLayout, calls_of, pack_text, unpack_text
from collector.measure.generated_code import CodeLog, lines_of

WRAPPER = """
# AOT ID: ['0_inference']
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()

# kernel path: /tmp/torchinductor_ci/ab/cabc.py
# Topologically Sorted Source Nodes: [y, z], Original ATen: [aten.add, aten.relu]
# Source node to ATen node mapping:
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
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
triton_red_fused_sum_1 = async_compile.triton('triton_red_fused_sum_1', '''
def triton_red_fused_sum_1(in_ptr0, out_ptr0):
    tl.store(out_ptr0, tl.sum(tl.load(in_ptr0), 1))
''', device_str='cuda')

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
    ("old", "new", "kernels"),
    [
        ("torchinductor_ci", "torchinductor_other", [True, True]),
        ("0_inference", "7_inference", [True, True]),
        ("'0A1B2C'", "'FFFF'", [True, True]),
        (RED, "triton_red_fused_sum_2", [True, True]),
        ("# a comment in the kernel\n", "# if a comment\n\n    # looks like C++\n", [True, True]),
        ("tmp0 / 2 + 1\n", "tmp0 / 2 + 1  # half\n", [True, True]),
        ("tmp0 / 2 + 1", "tmp0 / 2 + 2", [False, True]),
        ("{'x': 4096}", "{'x': 8192}", [False, True]),
    ],
)
def test_paths_comments_hashes_and_numbers_make_no_other_code(old, new, kernels):
    before, after = code_of(WRAPPER)[0], code_of(WRAPPER.replace(old, new))[0]
    same = [one.text_id == other.text_id for one, other in zip(before.kernels, after.kernels, strict=True)]
    assert (same, before.code_id == after.code_id) == (kernels, all(kernels))
    assert code_of(WRAPPER.replace("4096, stream", "8192, stream"))[0].code_id != before.code_id, "its wrapper differs"


ARRAYS = """
    static constexpr int64_t int_array_1[] = {8192L, 768L};
    aoti_torch_empty_strided(2, int_array_1, 0L);
    static constexpr int64_t int_array_2[] = {8192L, 768L};
    reinterpret_tensor_wrapper(buf0, 2, int_array_2, 0L);
    static constexpr int64_t *int_array_3=nullptr;
    aoti_torch_empty_strided(0, int_array_3, int_array_3);
"""

CPP = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
#if defined(CPU_CAPABILITY_AVX512)
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{
    #pragma omp parallel num_threads(2)
    // a comment
    auto tmp0 = in_ptr0[0]/2;
}
''')

def call(args):
    # Topologically Sorted Source Nodes: [y], Original ATen: [aten.add]
    cpp_fused_add_0(arg0_1, buf0)
"""


def test_arrays_and_directives_of_cpp_are_known_by_what_they_say():
    second = "    static constexpr int64_t int_array_2[] = {8192L, 768L};\n"
    shared = ARRAYS.replace(second, "").replace("int_array_2", "int_array_1").replace("int_array_3", "int_array_2")
    assert code_of(shared)[0].code_id == code_of(ARRAYS)[0].code_id
    other = ARRAYS.replace(second, second.replace("8192", "4096"))
    assert code_of(other)[0].code_id != code_of(ARRAYS)[0].code_id
    code = code_of(CPP)[0]
    assert [kernel.name for kernel in code.kernels] == ["cpp_fused_add_0"]
    assert code.kernels[0].source == "Source Nodes: [y], Original ATen: [aten.add]"
    assert code_of(CPP.replace("// a comment", "// another"))[0].code_id == code.code_id
    for old, new in (("num_threads(2)", "num_threads(4)"), ("AVX512", "AVX2"), ("cpp_prefix.h", "other.h")):
        assert code_of(CPP.replace(old, new))[0].code_id != code.code_id


#: A GEMM by a template, a reduction in two variants of which the first runs choose, a user's own kernel with quotes in it,
#: and a C++ wrapper that loads a kernel from the cache.
MORE = """
triton_tem_fused_mm_0 = async_compile.triton('triton_tem_fused_mm_0', '''
@triton_heuristics.template(num_stages=3, num_warps=4, inductor_meta={'kernel_name': 'triton_tem_fused_mm_0'})
@triton.jit
def triton_tem_fused_mm_0(arg_A, arg_B, out_ptr0):
    GROUP_M : tl.constexpr = 8
''', device_str='cuda')
triton_red_fused_1 = async_compile.triton('triton_red_fused_1', '''
def triton_red_fused_1(): looped
''', device_str='cuda')
triton_per_fused_1 = async_compile.triton('triton_per_fused_1', '''
def triton_per_fused_1(): persistent
''', device_str='cuda')
arg_index = {0: [slice(0, 4, None)]}
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [
    triton_red_fused_1,
    triton_per_fused_1,
], arg_index=arg_index)
# Original path: /home/me/model.py:12
mine_0 = async_compile.triton('mine_0', '''
def mine_0(): \\'\\'\\'text\\'\\'\\'
''', device_str='cuda')
loaded = loadKernel("/tmp/torchinductor_me/abc/cHASH.cubin", "mine_0")
"""


def test_templates_reduction_variants_and_user_kernels_are_kernels():
    wrapper = MORE.replace("HASH", "a" * 51)
    code, texts = code_of(wrapper)
    names = ["triton_tem_fused_mm_0", "triton_red_fused_1", "triton_per_fused_1", "mine_0"]
    assert [kernel.name for kernel in code.kernels] == names
    assert "/home/me" not in "".join(texts.values())
    assert "    triton_per_fused_1,\n]" in code.graphs[0].script(texts)
    other = MORE.replace("HASH", "b" * 51).replace("me/abc", "you/abd").replace("mine_0", "mine_7")
    assert code_of(other)[0].code_id == code.code_id


def test_a_graph_that_is_logged_twice_counts_once_and_nothing_is_no_code():
    assert code_of(WRAPPER, WRAPPER)[0] == code_of(WRAPPER)[0]
    assert len(code_of(WRAPPER, WRAPPER.replace("0_inference", "1_inference"))[0].graphs) == 2
    assert code_of()[0] is None
    assert unpack_text(pack_text(WRAPPER)) == WRAPPER
    with pytest.raises(ValueError, match="damaged"):
        unpack_text("bm8gemxpYg==")


@pytest.mark.slow
def test_choices_that_autotuning_tries_are_no_part_of_the_code(own_cache):
    @torch.library.custom_op("watch::product", mutates_args=())
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w

    product.register_fake(lambda x, w: torch.empty(x.shape[0], w.shape[1]))
    choices = [lambda x, w: x @ w, lambda x, w: x.contiguous() @ w]
    register_custom_op_autotuning(product, configs=[CustomOpConfig(choice) for choice in choices])
    log = CodeLog().attach()
    with torch.no_grad():
        torch.compile(lambda x: product(x, x) + 1, options={"max_autotune": True})(torch.ones(8, 8))
    assert len(log.take()[0].graphs) == 1


SITE = "/home/ci/venv/lib/python3.11/site-packages"
BERT = (
    f'  File "{SITE}/transformers/bert.py", line 9, in forward\n    h = self.dense(x)\n        ^^^\n'
    f'  File "{SITE}/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear(input)\n'
)
OWN = '  File "/home/ci/secret/model.py", line 3, in forward\n    return x.relu()\n'
TORCH = f'  File "{SITE}/torch/nn/functional.py", line 5, in gelu\n    return _gelu(x)\n'
DENSE, RELU = "transformers/bert.py:9  h = self.dense(x)", "model.py:3  return x.relu()"
GELU = "torch/nn/functional.py:5  return _gelu(x)"


def found_lines(records, *labels):
    told = lines_of(records, *labels)
    return {name: [told["lines"][number] for number in numbers] for name, numbers in told.get("kernels", {}).items()}


def test_a_kernel_has_its_innermost_lines_and_a_librarys_call_its_sizes():
    assert found_lines([json.dumps({"triton_0:1": [BERT, OWN]}), "no JSON"]) == {"triton_0": [DENSE, RELU]}
    assert found_lines([json.dumps({"triton_0:1": [TORCH], "triton_0:2": [OWN, OWN]})]) == {"triton_0": [GELU, RELU]}
    assert found_lines(["[1]"]) == {}
    forward = json.dumps({"extern_kernels.mm:1": [OWN], "triton_0:2": [TORCH], "extern_kernels.mm:3": [BERT]})
    backward = json.dumps({"extern_kernels.mm:1": [TORCH], "triton_1:2": [OWN]})
    labels = [{"extern_kernels.mm:1": "mm [2]", "extern_kernels.mm:3": "mm [4]"}, {"extern_kernels.mm:1": "mm [8]"}]
    found = found_lines([backward, forward], labels)
    assert (found["mm [2]"], found["mm [4]"], found["mm [8]"], found["triton_1"]) == ([RELU], [DENSE], [GELU], [RELU])
    doubtful = found_lines([backward], [labels[1], {"extern_kernels.mm:1": "mm [9]"}])
    assert set(doubtful) == {"extern_kernels.mm", "triton_1"}


POI = "a" * 16
#: As Inductor writes it for a GPU with graph partition and a dynamic size, shortened.
CALLING = f"""
{KERNEL}_{POI} = KERNEL_TEXT

def partition_0(args):
    arg1_1, s77 = args
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((4*s77, 8), (8, 1), torch.float16).as_strided((4*s77, 6), (8, 1))
        # Topologically Sorted Source Nodes: [y]
        # [Provenance debug handles] extern_kernels.mm:1
        extern_kernels.mm(reinterpret_tensor(arg1_1, (4*s77, 5), (1, 4*s77), 0), arg2_1, out=buf0)
        buf1 = buf0; del buf0  # reuse
        {KERNEL}_{POI}.run(buf1, 96, stream=stream0)
        buf2 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf1, buf1, buf1, 0.0, True, scale=0.5)
        buf3 = buf2[0]
        assert_size_stride(buf3, (1, 2), (2, 1), 'torch.ops')
        buf4 = extern_kernels.convolution(buf3, arg2_1, stride=(1, 1), bias=None)
        assert_size_stride(buf4, (7, 7), (7, 1), 'torch.ops')
    return (buf4, )

def call(args):
    s77, arg1_1, arg2_1 = args
    (buf4,) = self.partitions[0]([arg1_1, s77])
    extern_kernels.mm(os.system("false"), buf9, out=buf4)

def get_args():
    from torch._dynamo.testing import rand_strided
    s77 = 4
    arg1_1 = rand_strided((16, 5), (5, 1), device='cuda:0', dtype=torch.float16)
    arg2_1 = rand_strided((5, 6), (6, 1), device='cuda:0', dtype=torch.float16)
    return [s77, arg1_1, arg2_1]
"""
CALLED = Graph("w" * 16, (Kernel("triton_poi_0", POI),))


def test_each_call_has_the_layouts_that_it_gets_in_a_wrapper_of_python():
    product, kernel, attention, convolution, unknown = calls_of(CALLED, {CALLED.wrapper: CALLING})
    assert (product.name, product.text_id, product.out) == ("mm", "", TensorLayout("buf0", (16, 6), (8, 1), "float16"))
    assert (product.handle, product.label, kernel.handle) == ("extern_kernels.mm:1", "mm [16, 5] [5, 6]", "")
    assert [tensor.size for tensor in product.tensors] == [(16, 5), (5, 6)]
    assert (kernel.name, kernel.text_id, kernel.arguments[1]) == ("triton_poi_0", POI, 96)
    assert kernel.tensors[0].elements == 96 and kernel.tensors[0].item_bytes == 2
    assert (attention.arguments[3:], attention.out.size) == ((0.0, True), (1, 2))
    assert (convolution.out.size, convolution.keywords) == ((7, 7), {"stride": (1, 1), "bias": None})
    assert unknown.arguments == (None, None), "nothing is run, and what is not known is None"
    for texts in [{}, {CALLED.wrapper: "#include <torch/csrc/inductor/cpp_wrapper.h>\nint x;"}]:
        with pytest.raises(ValueError, match="the wrapper cannot be read"):
            calls_of(CALLED, texts)

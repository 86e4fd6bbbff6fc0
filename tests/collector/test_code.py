"""What a generated wrapper calls, read from its text."""

import pytest

from collector.code import KERNEL, Graph, Kernel, TensorLayout, calls_of

POI = "a" * 16
#: As Inductor writes it for a GPU with graph partition and a dynamic size, shortened.
WRAPPER = f"""
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
GRAPH = Graph("w" * 16, (Kernel("triton_poi_0", POI),))


def test_each_call_has_the_layouts_that_it_gets_in_a_wrapper_of_python():
    product, kernel, attention, convolution, unknown = calls_of(GRAPH, {GRAPH.wrapper: WRAPPER})
    assert (product.name, product.text_id, product.out) == ("mm", "", TensorLayout("buf0", (16, 6), (8, 1), "float16"))
    assert (product.handle, product.label, kernel.handle) == ("extern_kernels.mm:1", "mm [16, 5] [5, 6]", "")
    assert [tensor.size for tensor in product.tensors] == [(16, 5), (5, 6)]
    assert (kernel.name, kernel.text_id, kernel.arguments[1]) == ("triton_poi_0", POI, 96)
    assert kernel.tensors[0].elements == 96 and kernel.tensors[0].item_bytes == 2
    assert (attention.arguments[3:], attention.out.size) == ((0.0, True), (1, 2))
    assert (convolution.out.size, convolution.keywords) == ((7, 7), {"stride": (1, 1), "bias": None})
    assert unknown.arguments == (None, None), "nothing is run, and what is not known is None"
    for texts in [{}, {GRAPH.wrapper: "#include <torch/csrc/inductor/cpp_wrapper.h>\nint x;"}]:
        with pytest.raises(ValueError, match="the wrapper cannot be read"):
            calls_of(GRAPH, texts)

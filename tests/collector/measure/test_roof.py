"""How far kernels are from what their bytes and operations take, by the wrapper and the profile."""

import pytest
import torch

from collector.code import DEFINITION, KERNEL, Call, Code, Graph, Kernel, TensorLayout
from collector.measure import roof
from collector.measure.generated_code import CodeLog
from collector.measure.timing import DeviceEvent, device_events, record

ADD, SUM, GRAPH = "a" * 16, "b" * 16, "c" * 16
TEXTS = {
    ADD: "async_compile.triton('KERNEL_NAME', '''\ndef KERNEL_NAME(in_out_ptr0, in_ptr0, xnumel, XBLOCK : tl.constexpr):\n"
    "    tmp0 = tl.load(in_out_ptr0 + (x0), None)\n    tmp1 = tl.load(in_ptr0 + (tmp0), None)\n"
    "    tl.store(in_out_ptr0 + (x0), tmp1, None)\n''')",
    SUM: "async_compile.triton('KERNEL_NAME', '''\ndef KERNEL_NAME(in_ptr0, out_ptr0, xnumel):\n''')",
    GRAPH: f"""
{KERNEL}_{ADD} = {DEFINITION}
def call(args):
    x, w, table = args
    buf0 = empty_strided_cuda((1000, 1000), (1000, 1), torch.float32)
    extern_kernels.mm(x, w, out=buf0)
    {KERNEL}_{ADD}.run(buf0, table, 1000000, stream=stream0)
    buf1 = aten.sort.stable(buf0)
    {KERNEL}_{SUM}.run(buf0, w, 1000, stream=stream0)
    extern_kernels.addmm(w, x, w, alpha=1, beta=1, out=buf0)
def get_args():
    x = rand_strided((1000, 500), (500, 1), device='cuda:0', dtype=torch.float32)
    w = rand_strided((500, 1000), (1000, 1), device='cuda:0', dtype=torch.float32)
    table = rand_strided((9000, 1000), (1000, 1), device='cuda:0', dtype=torch.float32)
""",
}  # fmt: skip
CODE = Code("d" * 16, (Graph(GRAPH, (Kernel("triton_add_0", ADD), Kernel("triton_sum_1", SUM))),))
#: 1e9 bytes and 1e12 operations a second.
SLOW = roof.Ceilings(1e9, {"float32": 1e12})


def tensor(*size, dtype="float16"):
    return TensorLayout("buf", size, tuple(1 for _ in size), dtype)


def test_each_kernel_is_compared_with_its_ideal():
    names = ("gemm", "triton_add_0", "radix_sort", "triton_sum_1", "gemm", "splitk_reduce")
    events = [DeviceEvent(name, 20_000_000) for name in names] * 2
    found = roof.compare_with_ideal(events, 2, roof.expected_calls(CODE, TEXTS), SLOW)
    kernels = {kernel.name: kernel for kernel in found.kernels}
    add = kernels["triton_add_0"]
    # In and out, and of the table no more than what is gathered: 3 x 4 MB at 1 GB/s.
    assert (add.launches, add.ms, add.ideal_ms, add.lost_ms) == pytest.approx((1, 20, 12, 8))
    # Two tensors of 2 MB and one of 4 MB take longer than 1e9 operations.
    assert kernels["mm [1000, 500] [500, 1000]"].ideal_ms == pytest.approx(8)
    assert (kernels["addmm [500, 1000] [1000, 500] [500, 1000]"].ms, found.known) == pytest.approx((40, 100 / 120))
    assert kernels["sort [1000, 1000]"].ideal_ms is None, "torch has no formula for it"
    assert found.share == pytest.approx((8 + 12 + 0.008 + 10) / 100)
    assert roof.compare_with_ideal(events[:3], 1, roof.expected_calls(CODE, TEXTS), SLOW).share is None, "2/3 known"
    assert [row[0] for row in found.to_json()["kernels"]] == [one.name for one in found.kernels if one.ideal_ms]
    events = [DeviceEvent(name, 30_000_000) for name in ("Memcpy DtoD (Device -> Device)", "triton_add_0")]
    found = roof.compare_with_ideal(events, 1, roof.expected_calls(CODE, TEXTS), SLOW)
    assert (found.known, found.share) == pytest.approx((1, (30 + 12) / 60)), "a copy of the driver is at the roof"


#: Bias, stride, padding, dilation, transposed, output padding, groups, and which gradients are asked for.
GROUPED = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 4, (True, True, False))
IMAGE, WEIGHT, HEAD = tensor(1, 4, 8, 8), tensor(4, 1, 3, 3), tensor(1, 1, 16, 8)


@pytest.mark.parametrize(
    ("name", "arguments", "keywords", "out", "work"),
    [
        ("bmm", (tensor(2, 3, 4), tensor(2, 4, 5)), {}, tensor(2, 3, 5), (2.0 * (24 + 40 + 30), 240)),
        ("convolution", (IMAGE, WEIGHT), {"stride": (1, 1)}, IMAGE, (2.0 * (256 + 36 + 256), 2 * 64 * 9 * 4)),
        # Two gradients of a convolution by groups.
        ("convolution_backward", (IMAGE, IMAGE, WEIGHT, *GROUPED), {}, None, (2.0 * 548, 2 * 2 * 64 * 9 * 4)),
        ("_scaled_dot_product_flash_attention", (HEAD, HEAD, HEAD, 0.0, True), {}, None, (2.0 * 384, 16 * 16 * 16)),
        ("mm", (tensor(3, 4), None), {}, tensor(3, 5), None),
        ("mm", (tensor(3, 4, dtype="odd"), tensor(4, 5)), {}, tensor(3, 5), None),
    ],
)
def test_the_work_of_a_library_is_that_of_torchs_formulas(name, arguments, keywords, out, work):
    assert roof.library_work(Call(name, "", arguments, keywords, out)) == (work and roof.Work(*work, "float16"))


@pytest.mark.parametrize(
    ("name", "signature", "sizes", "operations"),
    [
        ("addmm_t_view", "in_ptr0, arg_A, arg_B", [(16,), (2, 32, 64), (16, 64), (64, 16)], 2 * 64 * 64 * 16),
        ("convolution", "arg_X, arg_W", [(1, 4, 8, 8), (6, 4, 3, 3), (1, 6, 8, 8)], 2 * 6 * 64 * 36),
        ("mm", "arg_A, arg_B", [(3, 4), (4, 5), (3, 7)], None),
    ],
)
def test_a_template_has_the_operations_of_its_product(name, signature, sizes, operations):
    text = f"\ndef KERNEL_NAME({signature}, out_ptr0):\n    acc += tl.dot(a, b)\n"
    found = roof.kernel_work(
        Call(f"triton_tem_fused_{name}_0", ADD, (*(tensor(*size) for size in sizes), 4, 1, 1)), text
    )
    assert (found.operations if found else None) == operations


@pytest.mark.gpu
@pytest.mark.parametrize("cudagraphs", [True, False])
@pytest.mark.parametrize(
    ("function", "least", "shape"),
    [
        (lambda x: x + 1, 0.8, (8192, 16384)),
        (lambda x: x @ x, 0.85, (8192, 8192)),
        (lambda x: (x @ x).relu().softmax(-1) @ x, 0.5, (4096, 4096)),
    ],
)  # fmt: skip
def test_a_plain_copy_and_product_are_near_the_roof(function, least, shape, cudagraphs):
    torch.compiler.reset()
    log = CodeLog().attach()
    program = torch.compile(function, options={"triton.cudagraphs": cudagraphs, "max_autotune": False})
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    torch._dynamo.mark_static_address(x)  # or cudagraphs copy it, with kernels whose work is not known
    with torch.inference_mode():
        for _ in range(4):
            program(x)
        code, texts = log.take()
        made = record(lambda: program(x), 3, "cuda")
    expected = roof.expected_calls(code, texts)
    ceilings = roof.measure_ceilings("cuda", ["bfloat16"])
    found = roof.compare_with_ideal(device_events(made), 3, expected, ceilings)
    told = f"{ceilings.to_json()} {[(one.name, one.launches, one.ms, one.ideal_ms) for one in found.kernels]}"
    print(f"share {found.share} {told}")  # noqa: T201
    assert 300 < ceilings.bytes_per_s / 1e9 < 20_000 and 50 < ceilings.operations_per_s["bfloat16"] / 1e12 < 5_000
    assert found.known > 0.9 and least < found.share <= 1, told

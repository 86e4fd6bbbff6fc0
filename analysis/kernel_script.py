"""A script that runs one generated kernel alone, as it was in base and in new, and times both.

It is written from what the database has: the kernel's source, and the sizes, strides and dtypes that the wrapper gives it.
Nothing is run here. tritonparse writes such scripts, too, and can keep the very values of the tensors; but it needs the program
to be run again under its tracing, for both torches, where this needs the stored code alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collector.code import KERNEL, Code
from collector.usage_errors import ExpectedError, nearest
from collector.wrapper_calls import ITEM_BYTES, Call, TensorLayout, calls_of


class NoScriptError(ExpectedError):
    """No script can be written of this kernel; the text says why."""


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """A kernel of a side: its name, its source as a Python expression, the calls of it, and lines for the script's head.

    `ms` is the device time of a launch in that run, where it was listed.
    """

    side: str
    name: str
    source: str
    calls: tuple[Call, ...]
    about: tuple[str, ...] = ()
    ms: float | None = None


def find_kernel(side: str, code: Code, texts: Mapping[str, str], name: str) -> StoredKernel:
    """Return a kernel of a side's code by its name; `texts` are by id.

    Raises:
        NoScriptError: there is none, it is no Triton kernel, or its source or the wrapper is not stored.
    """
    for graph in code.graphs:
        kernel = next((kernel for kernel in graph.kernels if kernel.name == name), None)
        if kernel is None:
            continue
        source = texts.get(kernel.text_id)
        if source is None:
            raise NoScriptError(f"the source of {name} is no longer stored")
        if not source.startswith("async_compile.triton(") or not name.isidentifier():
            raise NoScriptError(f"{name} is no Triton kernel")
        try:
            calls = tuple(call for call in calls_of(graph, texts) if call.text_id == kernel.text_id)
        except ValueError as error:
            raise NoScriptError(f"the launch of {name} is not known: {error}") from error
        if not calls or not all(_is_known(value) for value in calls[0].arguments):
            raise NoScriptError(f"the launch of {name} is not known: its wrapper gives it something of another kind")
        return StoredKernel(side, name, source.replace(KERNEL, name), calls)
    raise NoScriptError(f"{side} has no kernel {name}: {nearest(name, [kernel.name for kernel in code.kernels])}")


def _is_known(value: object) -> bool:
    if isinstance(value, TensorLayout):
        return value.dtype in ITEM_BYTES and not value.dtype.startswith("complex")
    return isinstance(value, bool | int | float)


def kernel_script(kernels: Sequence[StoredKernel]) -> str:
    """Return the script: Python that needs torch, Triton and a GPU."""
    parts = [_HEAD, *(_comments(kernel) for kernel in kernels), _IMPORTS]
    for kernel in kernels:
        arguments = ",\n    ".join(_argument(value) for value in kernel.calls[0].arguments)
        parts.append(
            f"{kernel.side}_kernel = {kernel.source}\n\n{kernel.side}_arguments = lambda: [\n    {arguments},\n]\n"
        )
    rows = "".join(
        f"    time_it({kernel.side!r}, {kernel.side}_kernel, {kernel.side}_arguments(), {kernel.name!r}, {kernel.ms!r})\n"
        for kernel in kernels
    )
    return "\n".join([*parts, f'{_TIMING}\n\nif __name__ == "__main__":\n    async_compile.wait(globals())\n{rows}'])


def _comments(kernel: StoredKernel) -> str:
    layouts = {tuple(call.arguments) for call in kernel.calls}
    more = f", with {len(layouts)} sets of arguments: the first is here" if len(layouts) > 1 else ""
    sites = f"  launched {len(kernel.calls)} x by the wrapper{more}"
    return _lines((f"{kernel.side}: {kernel.name}", *kernel.about, sites))


def _lines(lines: Iterable[str]) -> str:
    """Return comments: what comes from the database is of printable characters, a line each."""
    shown = ("".join(char if char.isprintable() else " " for char in line)[:300] for line in lines)
    return "".join(f"# {line}\n" for line in shown)


def _argument(value: object) -> str:
    if isinstance(value, TensorLayout):
        return f"tensor({value.size!r}, {value.stride!r}, torch.{value.dtype})"
    return repr(value)


_HEAD = """\
# One kernel alone, written by inductor-watch from its database. Run it with a torch and a GPU like those named here.
# The sources below are what Inductor generated in these runs, as their bundles say. Where a bundle came from somebody
# else, so does this code: read it before you run it.
#
# Numbers are random and indices are 0: a kernel that gathers or scatters goes to one row here. Autotuning chooses again.
#"""
_IMPORTS = """\
import torch
from torch._inductor.async_compile import AsyncCompile

async_compile = AsyncCompile()


def tensor(size, stride, dtype):
    elements = 1 + sum((length - 1) * step for length, step in zip(size, stride))
    if not dtype.is_floating_point:
        return torch.zeros(elements, dtype=dtype, device="cuda").as_strided(size, stride)
    return torch.randn(elements, device="cuda").to(dtype).as_strided(size, stride)

"""
_TIMING = """\

def device_ms(name, call, launches=50):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(launches):
            call()
        torch.cuda.synchronize()
    return sum(one.self_device_time_total for one in profiler.key_averages() if one.key == name) / 1e3 / launches


def time_it(side, kernel, arguments, name, stored_ms):
    def launch():
        kernel.run(*arguments, stream=torch.cuda.current_stream().cuda_stream)

    others = torch.ones(1 << 27, device="cuda")

    def launch_cold():
        others.sum()  # reads so much that nothing of the arguments is left in the cache
        launch()

    for _ in range(3):
        launch()
    was = "" if stored_ms is None else f"; in the run {stored_ms:.4f} ms"
    print(f"{side}: {device_ms(name, launch_cold):.4f} ms a launch, {device_ms(name, launch):.4f} ms with a warm cache{was}")
"""

"""Models that go wrong, one way each; measured as a user's own would be: `tests.collector.zoo.faulty:segfault`.

Only a measuring process may import this module: some of what it says could not be taken back.
"""

import ctypes
import gc
import os
import subprocess
import sys
import time

import torch
from torch import nn

_SLEEP = "import time; time.sleep(600)"


class Model(nn.Module):
    """A product of 16 by 16, with one thing that goes wrong before or after it."""

    def __init__(self, before=lambda x: x, after=lambda x: x):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.before, self.after = before, after

    def forward(self, x):
        return self.after(self.linear(self.before(x)))


def model(**steps):
    return Model(**steps), (torch.randn(4, 16),)


def healthy():
    return model()


def segfault():
    def read_nowhere(x):
        ctypes.string_at(0)
        return x

    return model(before=read_nowhere)


def out_of_memory():
    def take_a_petabyte(x):
        return x + torch.empty(1 << 48, device=x.device).sum()

    return model(after=take_a_petabyte)


def endless_compile():
    def unroll(x):
        if torch.compiler.is_compiling():
            for _ in range(10**9):
                x = x + 1
        return x

    return model(after=unroll)


@torch.compiler.disable
def _hang_while_timed(x):
    # The collector is off while calls are timed, and only then.
    while not gc.isenabled():
        time.sleep(600)
    return x


def hang_in_a_call():
    return model(after=_hang_while_timed)


def wrong_output():
    return model(after=lambda x: x * 1.5 if torch.compiler.is_compiling() else x)


def wrong_lowering():
    from torch._inductor.lowering import lowerings

    lowerings[torch.ops.aten.atan.default] = lowerings[torch.ops.aten.tan.default]
    return model(after=lambda x: torch.atan(torch.cos(x)))


def crash_in_lowering():
    from torch._inductor.lowering import lowerings

    lowerings[torch.ops.aten.atan.default] = lambda x: ctypes.string_at(0)
    return model(after=lambda x: torch.atan(torch.cos(x)))


@torch.compiler.disable
def _unseeded(x):
    return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(int.from_bytes(os.urandom(4))))


def nondeterministic():
    return model(after=_unseeded)


def import_error():
    import no_such_library

    return no_such_library


def no_choices():
    return model()


def children_left_behind():
    for _ in range(4):
        subprocess.Popen([sys.executable, "-S", "-c", _SLEEP], start_new_session=True)
    return model()


def floods_of_output():
    line = b"x" * 1023 + b"\n"
    for _ in range(100):
        sys.stdout.buffer.write(line * 1024)
    sys.stdout.flush()
    raise RuntimeError("after 100 MiB of output")


class BeyondItsTable(nn.Module):
    """Reads beyond a table; on a GPU a kernel asserts, after which nothing works in that process."""

    def __init__(self, in_eager):
        super().__init__()
        self.table, self.in_eager = nn.Embedding(8, 16), in_eager

    def forward(self, ids):
        return self.table(ids + 100 if self.in_eager or torch.compiler.is_compiling() else ids)


def device_assert():
    return BeyondItsTable(in_eager=False), (torch.arange(4),)


def device_assert_in_eager():
    return BeyondItsTable(in_eager=True), (torch.arange(4),)

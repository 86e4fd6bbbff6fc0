"""The host memory that is left, by the kernel and by a container's limit."""

from __future__ import annotations

import pytest

from collector.machine.host import available_bytes

GB = 1 << 30
MEMINFO = {"proc/meminfo": f"MemTotal: {64 * GB >> 10} kB\nMemAvailable: {20 * GB >> 10} kB\n"}
CGROUP = {
    "memory.max": f"{16 * GB}\n",
    "memory.current": f"{15 * GB}\n",
    "memory.stat": f"anon 7\ninactive_file {4 * GB}\n",
}
OLDER = {"memory/memory.limit_in_bytes": f"{8 * GB}", "memory/memory.usage_in_bytes": f"{9 * GB}"}


def of_container(files):
    return MEMINFO | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, None),
        (MEMINFO, 20 * GB),
        ({"proc/meminfo": "MemTotal: 5 kB\n"}, None),
        (of_container({"memory.max": "max\n"}), 20 * GB),
        (of_container(CGROUP), 5 * GB),
        (of_container(OLDER), 0),
    ],
)
def test_the_least_that_anything_allows_is_left(tmp_path, files, left):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path) == left

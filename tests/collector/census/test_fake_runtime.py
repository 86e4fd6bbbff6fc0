"""The preloaded runtime: built once, and one line where it cannot be."""

import os

import pytest

from collector.census import gpu_models
from collector.census.gpu_models import GPU_MODELS, CensusError, build_runtime

H100, A100 = GPU_MODELS["H100"], GPU_MODELS["A100"]


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that notes its calls and writes a file; `refuse` in its folder makes it fail."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime_api.h").write_text("/* header */")
    monkeypatch.setattr(gpu_models, "_header_folders", lambda: iter([tmp_path / "include"]))
    program = tmp_path / "bin" / "cc"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ -e {tmp_path}/refuse ] && echo "bad source" >&2 && exit 1\n'
        'while [ "$1" != -o ]; do shift; done\necho built > "$2"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CC", raising=False)
    return tmp_path


def test_a_runtime_is_built_once_for_each_gpu(compiler):
    first = build_runtime(H100, compiler / "cache")
    assert build_runtime(H100, compiler / "cache") == first
    assert build_runtime(A100, compiler / "cache") != first
    calls = (compiler / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert '-DGPU_NAME="NVIDIA H100 80GB HBM3"' in calls[0]


def test_another_header_is_another_runtime(compiler):
    first = build_runtime(H100, compiler / "cache")
    (compiler / "include" / "cuda_runtime_api.h").write_text("/* another CUDA */")
    assert build_runtime(H100, compiler / "cache") != first


def test_a_refused_source_is_one_line_and_leaves_nothing(compiler):
    (compiler / "refuse").touch()
    with pytest.raises(CensusError, match=r"does not compile the runtime of a census: bad source"):
        build_runtime(H100, compiler / "cache")
    assert not list((compiler / "cache").iterdir())


def test_no_compiler_is_one_line(compiler, monkeypatch):
    monkeypatch.setenv("PATH", str(compiler / "nothing"))
    with pytest.raises(CensusError, match="needs a C compiler and there is none: install gcc"):
        build_runtime(H100, compiler / "cache")


def test_no_header_is_one_line(compiler, monkeypatch):
    monkeypatch.setattr(gpu_models, "_header_folders", lambda: iter(()))
    with pytest.raises(CensusError, match="needs torch's wheel for CUDA"):
        build_runtime(H100, compiler / "cache")

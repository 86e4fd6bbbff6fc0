"""What a failure's record says."""

from __future__ import annotations

from collector.failures import classify, shortened
from collector.vocabulary import Stage, Status

COMMAND = "CppCompileError: C++ compile error\n\nCommand:\ng++ " + "-Iinclude " * 400
ERROR = "main.cpp:1565:33: error: 'aoti_torch_cuda__grouped_mm' was not declared in this scope"


def test_a_compilers_error_is_told_behind_its_long_command():
    message = f"{COMMAND}\nOutput:\n{ERROR}\n" + "  |  ^~~~\n" * 300
    status, failure = classify(RuntimeError(message), Stage.EAGER)
    assert status is Status.EAGER_FAIL
    assert failure.message.startswith("CppCompileError: C++ compile error")
    assert ERROR in failure.message
    assert len(failure.message) < 2100
    assert "a fault of torch" in failure.hint


def test_a_short_message_stays_as_it_is():
    assert shortened("no kernel fits") == "no kernel fits"
    assert shortened("x" * 2000) == "x" * 2000

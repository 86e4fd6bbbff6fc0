"""An option of Inductor as the other side of a check."""

import pytest

from collector.configs import parse_config
from collector.usage_errors import ConfigError
from jobs.checking.check_sides import OtherOption
from tests.factories import cell

TRITON, GRAPHS = (cell("bert", parse_config(text), device="cpu") for text in ("triton", "triton+size_asserts=false"))


def test_new_has_each_config_of_base_with_the_option():
    other = OtherOption.parse("+combo_kernels=true")
    names = {one.config.name for one in other.cells([TRITON, GRAPHS]).values()}
    assert names == {"triton+combo_kernels=true", "triton+combo_kernels=true+size_asserts=false"}
    frozen = OtherOption.parse("+freezing=true").cells([TRITON])
    assert [one.config for one in frozen.values()] == [parse_config("triton+freezing=true")]


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        ("+combo_kernels=true", False),
        ("+triton.cudagraphs=true", True),
        ("+combo_kernels=true+coordinate_descent_tuning=true", True),
    ],
)
def test_an_option_that_may_leave_no_trace_in_the_code_acts(text, acts):
    assert bool(OtherOption.parse(text).acting) is acts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("combo_kernels=true", "write options as +NAME=VALUE"),
        ("+dynamic=false", "name options of Inductor alone"),
        ("+", "has an empty part"),
    ],
)
def test_another_text_is_refused(text, said):
    with pytest.raises(ConfigError, match=said.replace("+", r"\+")):
        OtherOption.parse(text)


def test_an_option_that_torch_does_not_know_or_that_base_has_is_refused():
    with pytest.raises(ConfigError, match="combo_kernel"):
        OtherOption.parse("+combo_kernelz=true").cells([TRITON])
    with pytest.raises(ConfigError, match="base has these options already"):
        OtherOption.parse("+size_asserts=false").cells([TRITON, GRAPHS])

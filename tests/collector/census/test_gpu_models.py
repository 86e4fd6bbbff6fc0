"""The table of GPUs, and its way into the preloaded runtime."""

import pytest

from collector.census.gpu_models import GPU_MODELS, find_gpu
from collector.usage_errors import ConfigError


@pytest.mark.parametrize("name", ["h100", "H100", "NVIDIA H100 80GB HBM3"])
def test_a_gpu_has_a_word_and_the_name_of_its_driver(name):
    assert find_gpu(name) is GPU_MODELS["H100"]


def test_an_unknown_gpu_is_one_line_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no device 'H10': did you mean H100"):
        find_gpu("H10")

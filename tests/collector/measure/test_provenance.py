"""The lines of a model's source that Inductor's own records name for a kernel."""

import json

import pytest

from collector.measure.provenance import lines_of

SITE = "/home/ci/venv/lib/python3.11/site-packages"
BERT = (
    f'  File "{SITE}/transformers/bert.py", line 9, in forward\n    h = self.dense(x)\n        ^^^\n'
    f'  File "{SITE}/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear(input)\n'
)
OWN = '  File "/home/ci/secret/model.py", line 3, in forward\n    return x.relu()\n'
RELU, GELU = "model.py:3  return x.relu()", "torch/nn/functional.py:5  return _gelu(x)"
TORCH = f'  File "{SITE}/torch/nn/functional.py", line 5, in gelu\n    return _gelu(x)\n'


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        ({"triton_0:1": [BERT, OWN]}, {"triton_0": ["transformers/bert.py:9  h = self.dense(x)", RELU]}),
        ({"triton_0:1": [TORCH], "triton_0:2": [OWN, OWN]}, {"triton_0": [GELU, RELU]}),
        ({"triton_0:1": ["no stack"], "triton_1:2": [OWN]}, {"triton_1": [RELU]}),
        ({"triton_0:1": []}, {}),
        ([1], {}),
    ],
)  # fmt: skip
def test_each_kernel_has_the_innermost_lines_outside_of_torch(recorded, found):
    told = lines_of([json.dumps(recorded), "no JSON"])
    kernels = told.get("kernels", {})
    assert {name: [told["lines"][number] for number in numbers] for name, numbers in kernels.items()} == found

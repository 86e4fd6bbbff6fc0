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


def test_a_librarys_call_is_known_by_its_sizes_in_the_graph_that_has_it():
    forward = {"extern_kernels.mm:1": [OWN], "triton_0:2": [TORCH], "extern_kernels.mm:3": [BERT]}
    backward = {"extern_kernels.mm:1": [TORCH], "triton_1:2": [OWN]}
    labels = [{"extern_kernels.mm:1": "mm [2]", "extern_kernels.mm:3": "mm [4]"}, {"extern_kernels.mm:1": "mm [8]"}]
    told = lines_of(map(json.dumps, (backward, forward)), labels)
    found = {name: [told["lines"][number] for number in numbers] for name, numbers in told["kernels"].items()}
    assert (found["mm [2]"], found["mm [4]"]) == ([RELU], ["transformers/bert.py:9  h = self.dense(x)"])
    assert (found["mm [8]"], found["triton_1"]) == ([GELU], [RELU])
    doubtful = lines_of([json.dumps(backward)], [labels[1], {"extern_kernels.mm:1": "mm [9]"}])
    assert set(doubtful["kernels"]) == {"extern_kernels.mm", "triton_1"}

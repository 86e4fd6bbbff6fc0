"""What `inductor-watch init` writes: a commented `models.toml`, and a module with a model where there is none yet."""

from __future__ import annotations

from pathlib import Path

from collector.output_file import write_output
from collector.own_models import OwnModel, is_user_model, takes_batch_size

#: The function of the example.
EXAMPLE = "my_models:small"
_MODULE = '''"""Models to watch. A function returns the model and its inputs, on the CPU and in float32."""

import torch
from torch import nn


def small(batch_size):
    layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256))
    return layers, (torch.randn(batch_size, 256),)
'''
_FILE = """\
# Your own models: `nightly`, `plan`, `run` and `check` read this file in the folder in which they are called,
# or where --models-file names it. `inductor-watch init` checks it.

# Measure the zoo's night as well.
# with_zoo = true

# A model: its name in all tables, and the function that makes it.
[models.{name}]
# The module is looked for beside this file, in the current folder and on PYTHONPATH. Of batch_size, phase
# ("inference" or "training") and device the function gets those that it takes. It returns (model, args) or
# (model, args, kwargs).
function = "{target}"
{sizes}

# All of the following may be left out.
# phases = ["inference", "training"]        # default: inference
# dtypes = ["float32", "bfloat16"]          # default: bfloat16 on a GPU (amp for training), float32 on a CPU
# configs = ["triton", "max_autotune"]      # as --config takes them; default: those of the night
# tolerance = 0.01                          # how far the compiled outputs may be from eager's
# The folder whose git commit is the model's version, or a package whose content is. Default: the content of the
# package in which the function is. A new version is a new model: what then changes is not torch's doing.
# source = "."
# In place of batch_sizes, arguments of the function under a name: this makes {name}.short and {name}.long.
# shapes = {{ short = {{ batch_size = 8, seq = 128 }}, long = {{ batch_size = 1, seq = 2048 }} }}
"""
#: Its line on batch sizes for a function that is not seen to take one.
_NO_SIZES = (
    "# batch_sizes = [1, 8]                    # default: what the function makes; it must take batch_size for others"
)


def write_example(path: Path, target: str) -> list[Path]:
    """Writes the file for this function, and for the example's one its module where there is none; returns both paths.

    An existing file is not replaced. Raises `ValueError` for a text that is no module:function.
    """
    if not is_user_model(target):
        raise ValueError(f"{target!r} is no function of yours: write module:function, e.g. {EXAMPLE}")
    written = []
    module = path.parent / f"{EXAMPLE.partition(':')[0]}.py"
    if target == EXAMPLE and not module.exists():
        write_output(module, _MODULE, force=False)
        written.append(module)
    sizes = "batch_sizes = [1, 32]" if target == EXAMPLE else "batch_sizes = [1]"
    if not takes_batch_size(OwnModel("", target, folder=str(path.parent))):
        sizes = _NO_SIZES
    write_output(path, _FILE.format(name=target.partition(":")[2], target=target, sizes=sizes), force=False)
    return [path, *written]

"""Builders of models from outside, in the measuring process only: a user's own, GraphNet's and torchbenchmark's."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch
from torch import nn

from collector.own_models import BATCH_ARGUMENTS
from collector.usage_errors import ZooError
from collector.vocabulary import OWN_BATCH, Phase
from collector.zoo.catalog.pytorch_suites import samples_folder
from collector.zoo.spec import Built, begin_device_use


def build_user(
    batch_size: int,
    phase: Phase,
    device: str,
    target: str,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    folder: str = "",
) -> Built:
    """Call a user's function and build a model with inputs and a loss from its result.

    The module is searched in `folder`, in the working directory and on PYTHONPATH. The function gets `batch_size`, `phase`
    ("inference" or "training") and `device` if it has parameters of these names, and all `arguments`. It returns a model with
    its inputs: `(model, args)`, `(model, args, kwargs)`, or a `Built`. With a batch size of `OWN_BATCH` the function chooses the
    batch; if it takes `batch_size` nevertheless, it gets 1.

    Raises:
        ImportError: no such module, or no such function in it.
        TypeError: the function returned something else, or does not take one of the arguments.
        ValueError: the function takes no `batch_size`, and its inputs do not have the requested batch size.
    """
    begin_device_use()  # the function may use the device at once
    module_name, _, name = target.partition(":")
    if folder and (place := str(Path(folder).resolve())) not in sys.path:
        sys.path.insert(0, place)
    module = import_module(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        raise ImportError(f"module {module_name} has no function {name}")
    # With marked dimensions a model is built at a second batch size.
    arguments = {**arguments, **{word: batch_size for word in BATCH_ARGUMENTS if word in arguments}}
    given = {"batch_size": batch_size or 1, "phase": phase.value, "device": device, **arguments}
    wanted = _wanted(function, given)
    if refused := arguments.keys() - wanted.keys():
        takes = ", ".join(inspect.signature(function).parameters) or "nothing"
        raise TypeError(f"{target} takes no {', '.join(sorted(refused))}, only {takes}: see the shapes in models.toml")
    built = _built(function(**wanted), target)
    if batch_size != OWN_BATCH and "batch_size" not in wanted and not arguments:
        _check_size(built, batch_size, name)
    return built


def _built(made: Any, target: str) -> Built:
    if isinstance(made, Built):
        return made
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        raise TypeError(f"{target} returned {_type_of(made)}: return (model, args) or (model, args, kwargs)")
    args = made[1] if isinstance(made[1], list | tuple) else (made[1],)
    return Built(made[0], tuple(args), dict(made[2]) if len(made) == 3 else {}, own_loss_or_mean_squares)


def input_batch(args: Iterable[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Return the first dimension of the first input with two dimensions or more; None if there is no such input.

    A tensor of one dimension may be a batch of numbers, such as indices, or a single sample.
    """
    return next((len(value) for value in _tensors((*args, kwargs)) if value.dim() > 1), None)


def _check_size(built: Built, batch_size: int, name: str) -> None:
    """Raise `ValueError` if the inputs do not have the cell's batch size, under which the results are stored."""
    size = input_batch(built.args, built.kwargs)
    first = next(_tensors((*built.args, built.kwargs)), None)
    firsts = (size, first.shape[0] if first is not None and first.dim() else None)
    if batch_size in firsts or (size is None and batch_size == 1):
        return
    makes = f"makes a batch of {size}" if size else "makes inputs of no known batch"
    raise ValueError(
        f"{name} takes no batch_size and {makes}, not of {batch_size}: leave out the batch size, or write "
        f"`def {name}(batch_size)`"
    )


def own_loss_or_mean_squares(made: Any, _: Any) -> torch.Tensor:
    """Return the output named `loss` if there is one, else the sum of the mean squares of all floating and complex outputs.

    Raises:
        TypeError: there is no such output to make a loss of.
        ValueError: the output named `loss` has more elements than one, or none.
    """
    own = made.get("loss") if isinstance(made, Mapping) else getattr(made, "loss", None)
    if isinstance(own, torch.Tensor):
        if own.numel() != 1:
            raise ValueError(
                f"the output `loss` must have one element, and has shape {tuple(own.shape)}: take its mean"
            )
        return own
    values = [value.abs() if value.is_complex() else value for value in _tensors(made)]
    squares = [value.float().square().mean() for value in values if value.is_floating_point()]
    if not squares:
        raise TypeError("a training step needs a floating or complex output to make a loss of")
    return torch.stack(squares).sum()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from _tensors(getattr(value, part.name))


def _wanted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def _type_of(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(item).__qualname__ for item in made) or 'nothing'}"
    return f"a {type(made).__qualname__}"


#: GraphNet's own replay: the factor on a recorded deviation, the limit of values, and the deviation if none is recorded.
_SPREAD, _LIMIT, _DEVIATION = 0.2, 100.0, 0.1
#: The deviation from 0 of the values that replace NaN and infinities in GraphNet's replay.
_SMALL = 0.01


@dataclass(frozen=True, slots=True)
class Meta:
    """A sample's record of one argument: `data` if its values were kept, else their distribution."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "torch.float32"
    mean: float | None = None
    std: float | None = None
    data: Any = None
    min_val: float | None = None
    max_val: float | None = None


def build_graphnet(batch_size: int, phase: Phase, device: str, sample: str) -> Built:
    """Build a sample's graph with its inputs. Its weights become parameters and buffers, so that freezing has an effect.

    Raises `ZooError` for a batch size other than 1, a missing file, or an argument without a record.
    """
    if batch_size != 1:
        raise ZooError(f"{sample} is a captured graph, its batch size cannot be changed: leave out --batch-size")
    folder = samples_folder() / sample
    metas = read_metas(folder / "weight_meta.py")
    if (inputs := folder / "input_meta.py").is_file():  # older samples have all in one file
        metas |= read_metas(inputs)
    graph = _load_graph(folder / "model.py", device)
    parameters = list(inspect.signature(graph.forward).parameters.values())
    if lacking := [item.name for item in parameters if item.name not in metas]:
        raise ZooError(f"{sample} records nothing of its argument {lacking[0]}")
    values = {item.name: value_of(metas[item.name], _is_symbol(item)) for item in parameters}
    bound = BoundGraph(graph, values)
    return Built(bound, tuple(values[name] for name in bound.inputs), {}, own_loss_or_mean_squares)


class BoundGraph(nn.Module):  # type: ignore[misc]
    """A module that holds the weights which a captured graph takes as arguments, as parameters and buffers."""

    def __init__(self, graph: nn.Module, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.graph, self.order = graph, tuple(values)
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and "_parameters_" in name and value.is_floating_point():
                self.register_parameter(name, nn.Parameter(value))
            elif isinstance(value, torch.Tensor) and ("_parameters_" in name or "_buffers_" in name):
                self.register_buffer(name, value)
        held = {name for name, _ in self.named_parameters()} | {name for name, _ in self.named_buffers()}
        #: The arguments that each call still passes, in order.
        self.inputs = tuple(name for name in values if name not in held)

    def forward(self, *inputs: Any) -> Any:
        """Return the graph's outputs for these inputs."""
        given = dict(zip(self.inputs, inputs, strict=True))
        return self.graph(*(given[name] if name in given else getattr(self, name) for name in self.order))


def read_metas(path: Path) -> dict[str, Meta]:
    """Read the records of a meta file, by the argument's name; the file's classes are parsed and never executed.

    Raises `ZooError` if the file is missing or is not Python, or a record has no name.
    """
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError) as error:
        raise ZooError(f"{path.parent.name}/{path.name} cannot be read ({type(error).__name__})") from error
    metas = [_meta(node) for node in tree.body if isinstance(node, ast.ClassDef)]
    return {meta.name: meta for meta in metas}


def _meta(node: ast.ClassDef) -> Meta:
    known = {item.name for item in fields(Meta)}
    values: dict[str, Any] = {}
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id in known:
            values[line.targets[0].id] = _literal(line.value)
    if not isinstance(values.get("name"), str):
        raise ZooError(f"the record {node.name} has no name")
    values["shape"] = tuple(values.get("shape") or ())
    return Meta(**values)


def _literal(node: ast.expr) -> Any:
    # Some records have float("inf") and the like in place of a number; anything else must be a literal.
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float" and node.args:
        return float(ast.literal_eval(node.args[0]))
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ZooError(f"line {node.lineno} of a record is no literal") from error


def value_of(meta: Meta, is_symbol: bool = False) -> Any:
    """Return a value for a recorded argument, drawn from torch's global generator; the value of a symbol is a plain number.

    Floating values are drawn as in GraphNet's replay: `randn * std * 0.2 + mean`, within the recorded limits and within -100 and
    100. A running variance is also made positive, since a negative one turns all later values into NaN. Raises `ZooError` if
    the record has an unknown dtype, or a symbol has no value.
    """
    if is_symbol:
        if not isinstance(meta.data, list) or len(meta.data) != 1:
            raise ZooError(f"the record of symbol {meta.name} holds no value")
        return int(meta.data[0])
    dtype = getattr(torch, meta.dtype.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise ZooError(f"the record of {meta.name} has an unknown dtype {meta.dtype!r}")
    if meta.data is not None:
        return torch.tensor(meta.data, dtype=dtype).reshape(meta.shape)
    if dtype.is_floating_point:
        deviation = _DEVIATION if meta.std is None else meta.std
        spread = torch.randn(meta.shape) * deviation * _SPREAD + (meta.mean or 0.0)
        if meta.min_val is not None or meta.max_val is not None:
            spread = spread.clamp(meta.min_val, meta.max_val)
        spread = torch.where(spread.isfinite(), spread, torch.randn(meta.shape) * _SMALL)
        kept = spread.clamp(-_LIMIT, _LIMIT).to(dtype)
        return kept.abs() if meta.name.endswith("running_var_") else kept
    if dtype is torch.bool:
        return torch.randint(0, 2, meta.shape).bool()
    low, high = int(meta.min_val or 0), int(meta.max_val or 0)
    return torch.randint(low, max(low, high) + 1, meta.shape, dtype=dtype)


def _is_symbol(parameter: inspect.Parameter) -> bool:
    return "SymInt" in str(parameter.annotation)


def _load_graph(path: Path, device: str) -> nn.Module:
    """Load the graph of a sample, with every device in its code replaced by `device`, as GraphNet's own runner does."""
    if not path.is_file():
        raise ZooError(f"{path.parent.name} has no model.py")
    module = ModuleType("graphnet_sample")
    sys.modules[module.__name__] = module  # Dynamo looks its globals up by the module's name
    tree = ast.fix_missing_locations(_OnDevice(device).visit(ast.parse(path.read_text())))
    source = ast.unparse(tree)
    # Dynamo and tracebacks then show lines of the code that runs, and not of the file.
    name = f"<{path.parent.name}/{path.name} on {device}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module.__file__ = str(path)
    exec(compile(source, name, "exec"), vars(module))  # noqa: S102 - this is the measuring process
    graph: nn.Module = module.GraphModule()
    return graph


class _OnDevice(ast.NodeTransformer):
    """A transformer that replaces `device(...)`, `torch.device(...)`, constants of keywords `device`, and texts like "cuda:0"."""

    def __init__(self, device: str) -> None:
        self._name = ast.Constant(device)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Replace the device in a call of `device`, or a constant that a call passes as its keyword `device`."""
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if name == "device":
            return ast.Call(node.func, [self._name], [])
        for keyword in node.keywords:
            if keyword.arg == "device" and isinstance(keyword.value, ast.Constant) and keyword.value.value is not None:
                keyword.value = self._name
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Replace a text that names a GPU with an index."""
        is_gpu = isinstance(node.value, str) and re.fullmatch(r"cuda:\d+", node.value)
        return self._name if is_gpu else node


def build_torchbenchmark(batch_size: int, phase: Phase, device: str, name: str) -> Built:
    """Build the module and the example inputs of `torchbenchmark.models.NAME`.

    The package's own losses are inside its training loops, so the loss is `own_loss_or_mean_squares`. Raises
    `NotImplementedError` if the package does not have the model in this phase or on this device.
    """
    begin_device_use()  # the package itself puts its models on the device
    made = import_module(f"torchbenchmark.models.{name}").Model(
        test="train" if phase is Phase.TRAINING else "eval", device=device, batch_size=batch_size
    )
    model, inputs = made.get_module()
    args = () if isinstance(inputs, Mapping) else (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    kwargs = dict(inputs) if isinstance(inputs, Mapping) else {}
    return Built(model, args, kwargs, own_loss_or_mean_squares)

"""Builds a user's own model from `module:function`, in the measuring process and nowhere else."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from collector.own_models import BATCH_ARGUMENTS
from collector.vocabulary import OWN_BATCH, Phase
from collector.zoo.device_use import begin_device_use
from collector.zoo.spec import Built


def build(
    batch_size: int,
    phase: Phase,
    device: str,
    target: str,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    folder: str = "",
) -> Built:
    """Calls the function and makes of its answer a model with inputs and a loss.

    The module is looked for in `folder`, in the working directory and on PYTHONPATH. Of `batch_size`, `phase` ("inference"
    or "training") and `device` the function gets those that it takes by name, and it gets all `arguments`. It returns a
    model with its inputs: `(model, args)`, `(model, args, kwargs)`, or a `Built` of its own. A batch size of `OWN_BATCH`
    leaves the batch to the function; one that takes `batch_size` all the same gets 1.

    Raises:
        ImportError: no such module, or no such function in it.
        TypeError: the function returned something else, or takes none of the arguments' names.
        ValueError: the function takes no `batch_size`, and its inputs are not of the size that was asked for.
    """
    begin_device_use()  # what the function does is not known
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
    """Return the first dimension of the first input with two dimensions or more; None where there is no such input.

    One dimension is a batch of numbers, such as indices, or a single sample.
    """
    return next((len(value) for value in _tensors((*args, kwargs)) if value.dim() > 1), None)


def _check_size(built: Built, batch_size: int, name: str) -> None:
    """Raise `ValueError` if the cell's batch size, under which the figures are stored, is not that of the inputs."""
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
    """The output named `loss` if there is one, else the sum over the floating outputs of their mean squares.

    Raises:
        TypeError: there is no floating output to make a loss of.
    """
    own = made.get("loss") if isinstance(made, Mapping) else getattr(made, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    squares = [value.float().square().mean() for value in _tensors(made) if value.is_floating_point()]
    if not squares:
        raise TypeError("a training step needs a floating output to make a loss of")
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


def _wanted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def _type_of(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(item).__qualname__ for item in made) or 'nothing'}"
    return f"a {type(made).__qualname__}"

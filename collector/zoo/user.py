"""User models: `module:function` as a model of suite `user`. Names one; only the measuring process imports it."""

from __future__ import annotations

import re

from collector.zoo.spec import ACCELERATOR, BOTH, ModelSpec, ZooError

#: The suite that a user's own models are of.
SUITE = "user"
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def is_user_model(name: str) -> bool:
    """Whether a name is spelt `module:function`; no model of the zoo is."""
    return _NAME.fullmatch(name) is not None


def user_model(name: str) -> ModelSpec:
    """The model that a function of the user's builds. Nothing of it is imported or looked for here.

    Its batch size is 1 unless another is asked for; `collector.zoo.builders.user` tells what the function gets and
    returns, and refuses a size that the function does not make.

    Raises:
        ZooError: the name is not spelt `module:function`.
    """
    if not is_user_model(name):
        raise ZooError(f"{name!r} is no model of your own: write module:function, e.g. my_models:tiny")
    return ModelSpec(
        suite=SUITE,
        name=name,
        builder="collector.zoo.builders.user:build",
        batch_sizes={phase: {ACCELERATOR: 1, "cpu": 1} for phase in BOTH},
        input_note="what the function returns",
        params={"target": name},
    )

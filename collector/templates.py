"""`collector.templates.resolve`: the public name of `collector.configs.templates.resolve`."""

from collector.configs.templates import resolve

__all__ = ["resolve"]

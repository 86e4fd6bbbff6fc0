"""PNG of an SVG, where vl-convert is installed: a wheel with its own fonts and renderer, which asks nobody for anything."""

from __future__ import annotations

from types import ModuleType

#: What is said where it is not.
INSTALL = "vl-convert is not installed: pip install vl-convert-python"
#: Pixels of the picture for a pixel of the drawing: sharp on a screen of high density, and in a slide.
SCALE = 2.0


class PictureError(Exception):
    """A picture that cannot be made; one line for a person."""


def converter() -> ModuleType:
    """The module that draws pictures. Raises `PictureError` where it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        raise PictureError(INSTALL) from error
    return vl_convert


def png(svg: str) -> bytes:
    """The picture of an SVG text, twice as large. Raises `PictureError` where vl-convert is not installed."""
    found: bytes = converter().svg_to_png(svg, scale=SCALE)
    return found

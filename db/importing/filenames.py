"""What PyTorch's nightly says in a file's name: config, suite, dtype, mode, device, target.

`<backend>_<config>_<suite>_<dtype>_<mode>_<device>_<target>[_<side file>]`, after `test_perf_for_dashboard` in PyTorch's
`.ci/pytorch/test.sh`. Both `timm_models` and the words of a config contain `_`, so the suite's name is the anchor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from db.importing.rows import Target

SUITES = ("torchbench", "huggingface", "timm_models")
_NAME = re.compile(
    r"(?:(?P<config>.*?)_)?(?P<suite>" + "|".join(SUITES) + r"|timm)"
    r"_(?P<dtype>amp|bfloat16|float16|float32|float64|quant|notset)"
    r"_(?P<mode>training|inference)"
    r"(?:_(?P<end>.*))?"
)
_SIDE = re.compile(r"_(compilation_metrics|graph_breaks|graph_break_deduped|stats)(?=$|[-_.])")
_TARGET = re.compile(r"(?:^|[-_])(performance|accuracy)(?=$|[-_.])")
#: No name of a file is longer; a longer text is none of ours.
_LONGEST = 500
_SIDES = {
    "compilation_metrics": Target.PHASES,
    "graph_breaks": Target.BREAKS,
    "graph_break_deduped": Target.BREAKS,
    "stats": Target.OTHER,
}


@dataclass(frozen=True, slots=True)
class FileName:
    """The parts of a name. `config` still has its backend in front; `beside` is the target of the file it lies beside."""

    config: str = ""
    suite: str | None = None
    dtype: str | None = None
    mode: str | None = None
    device: str | None = None
    target: Target | None = None
    beside: Target | None = None


def parse_name(stem: str) -> FileName:
    """The parts of a file's name without its ending; what it does not tell is None."""
    side_match = _SIDE.search(stem)
    side = _SIDES[side_match[1]] if side_match else None
    main = stem[: side_match.start()] if side_match else stem
    match = _NAME.fullmatch(main) if len(stem) < _LONGEST else None
    end = main if match is None else match["end"] or ""
    target = _TARGET.search(end)
    beside = Target(target[1]) if target else None
    if match is None:
        return FileName(target=side or beside, beside=beside)
    device = (end[: target.start()] if target else end) or None
    return FileName(
        match["config"] or "", match["suite"], match["dtype"], match["mode"], device, side or beside, beside
    )

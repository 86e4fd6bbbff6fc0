"""Which cells a night measures: the default night of the device, or what the options narrow it to.

The default on a CPU fits into minutes; on a GPU it is the whole zoo.
"""

from __future__ import annotations

from collections.abc import Iterable

from collector.configs.spelling import parse_config
from collector.vocabulary import Cell, Config, Phase
from jobs.plan.planning import Matrix, Plan, make_plan, mode_configs, template_configs
from jobs.pool.requested_options import Selection

#: On a CPU the other templates are unavailable or, like `aten`, leave the program as it is.
CPU_CONFIGS = tuple(Config(template=name) for name in ("triton", "cpp_wrapper", "freezing", "max_autotune"))
#: Templates without autotuning, in which a training night fits.
TRAINING_CONFIGS = tuple(Config(template=name) for name in ("triton", "cudagraphs", "cpp_wrapper"))
#: The one model that a CPU night also trains.
CPU_TRAINING_TAG = "cpu-training"


def default_dtype(device: str, phase: Phase) -> str:
    """What PyTorch's own nights use: bfloat16 for inference and amp for training on a GPU; float32 on a CPU."""
    if device == "cpu":
        return "float32"
    return "amp" if phase is Phase.TRAINING else "bfloat16"


def planned_night(device: str, selection: Selection, configs: tuple[str, ...]) -> Plan:
    """The default night of a device if nothing is narrowed, else the matrix that the options spell."""
    if not selection.is_narrowed and not configs:
        return night_plan(device)
    return selected(device, selection, [parse_config(text) for text in configs] or all_configs())


def selected(device: str, selection: Selection, configs: list[Config]) -> Plan:
    """Every cell of a selection under every config, phase by phase; inference where no phase is given."""

    def matrix(phase: Phase) -> Matrix:
        dtype = selection.dtype or default_dtype(device, phase)
        return Matrix(device, dtype, configs, selection.suites, selection.models, (), (phase,), selection.batch_size)

    return join(make_plan(matrix(Phase(phase))) for phase in selection.phases or (Phase.INFERENCE,))


def night_plan(device: str) -> Plan:
    """The default night of a device, cheap configs first."""
    return join(make_plan(matrix) for matrix in night_matrices(device))


def night_matrices(device: str) -> list[Matrix]:
    """The matrices that make up a device's night."""
    inference, training = (default_dtype(device, phase) for phase in (Phase.INFERENCE, Phase.TRAINING))
    if device == "cpu":
        # The training cell is the longest: first, so that no core waits for it at the end.
        return [
            Matrix(device, training, CPU_CONFIGS[:1], tags=(CPU_TRAINING_TAG,), phases=(Phase.TRAINING,)),
            Matrix(device, inference, CPU_CONFIGS, tags=("cpu-night",)),
        ]
    return [
        Matrix(device, inference, all_configs()),
        Matrix(device, training, TRAINING_CONFIGS, phases=(Phase.TRAINING,)),
    ]


def all_configs() -> list[Config]:
    """The eight templates, and the modes of the installed torch."""
    return [*template_configs(), *mode_configs()]


def join(plans: Iterable[Plan]) -> Plan:
    """Several plans as one; a cell planned twice is measured once."""
    cells: dict[str, Cell] = {}
    left_out: dict[str, None] = {}
    for plan in plans:
        cells |= {cell.cell_id: cell for cell in plan.cells}
        left_out |= dict.fromkeys(plan.left_out)
    return Plan(list(cells.values()), list(left_out))

"""What torch's own compiler bisector says about a cell that fails: which part of the compiler it fails with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collector.vocabulary import Measurement, Status

#: The key of a measurement's details that has its explanation.
EXPLAINED = "explained"
#: Statuses that the bisector can find the cause of: eager computes the cell and the compiled program does not.
EXPLAINABLE = (Status.FAIL_ACCURACY, Status.FAIL_TO_COMPILE, Status.FAIL_TO_RUN, Status.CRASHED)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `torch._inductor.compiler_bisector` for one cell; a field is empty where it was not found.

    `backend` is the first back-end with which the cell fails, from `eager` to `inductor`. `subsystem` is the part of it
    without which the cell passes, such as `lowerings`. `number` counts the applications of the subsystem up to the one that
    makes the cell fail, and `target` is what torch says of that one: a pass or an operator. `status` is how the cell failed
    with the back-end. `unfinished` says why the search ended early. `steps` is the number of compilations.
    """

    backend: str = ""
    subsystem: str = ""
    number: int | None = None
    target: str = ""
    status: str = ""
    unfinished: str = ""
    steps: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Explanation | None:
        """The one in a measurement's details, if any. Fields of a newer version are ignored."""
        data = details.get(EXPLAINED)
        if not isinstance(data, Mapping):
            return None
        return cls(**{name: value for name, value in data.items() if name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        """A JSON object with a key for every field."""
        return asdict(self)

    def added_to(self, measurement: Measurement) -> None:
        """Keeps it among the measurement's evidence."""
        measurement.details[EXPLAINED] = self.to_json()

    def __str__(self) -> str:
        names = ", ".join(name for name in (self.backend, self.subsystem, self.target) if name)
        if names:
            return f"torch's compiler bisector names: {names}" + (f" ({self.unfinished})" if self.unfinished else "")
        why = self.unfinished or "the cell passes with every back-end now: the failure did not come again"
        return f"torch's compiler bisector names nothing: {why}"

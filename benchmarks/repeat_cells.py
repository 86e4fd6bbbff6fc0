"""Measures the cells of a plan several times with the same code, each time in a new process.

    python -m benchmarks repeat_cells PLAN FOLDER --times 4 [--gpus all] [--workers 16]

Every repetition on a GPU is a run with its own bundle. All repetitions share one pool: the next one starts when fewer cells
of the current one are left than there are workers.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from collector.bundle import BundleWriter
from collector.machine.environment import environment_id
from collector.settings import Settings
from collector.vocabulary import Cell
from jobs.plan.cost import CostModel, learn_from
from jobs.plan.schedule import longest_first, shares
from jobs.pool.device_pool import Pool
from jobs.pool.host import cell_variables
from jobs.pool.requested_options import ExecutionOptions, RequestedOptions, RunNames
from jobs.pool.runner import make_header, new_run_id, now, record, scheduler_for
from jobs.pool.testbeds import Testbed, find_testbeds


def main() -> None:
    """Measures all repetitions; prints a line for each cell."""
    options = _parse()
    settings = Settings(timeout_s=options.timeout)
    pace = ExecutionOptions(options.workers, options.max_s, gpus=options.gpus)
    model = learn_from(options.costs) if options.costs else CostModel.learn([])
    planned = [Cell.from_json(item) for item in json.loads(options.plan.read_text())["cells"]]
    testbeds = find_testbeds(options.device, pace)
    lanes = [
        Repetitions(
            testbed, longest_first(share, model, pace.workers), options.times, options.folder, settings, options.label
        )
        for testbed, share in zip(testbeds, shares(planned, model, len(testbeds)), strict=True)
    ]
    variables, began = cell_variables(pace.start), time.monotonic()
    try:
        # All cells once, then all cells again.
        queues = [scheduler_for(lane.testbed, lane.cells * lane.times, settings, variables) for lane in lanes]
        pool = Pool(queues, pace.budget_s)
        with closing(pool.run()) as outcomes:
            for index, outcome in outcomes:
                writer = lanes[index].writer_of(outcome.measurement.cell)
                for item in record(writer, outcome):
                    done = sum(lane.done for lane in lanes)
                    print(
                        f"[{done}] {time.monotonic() - began:.0f} s {item.cell.cell_id} {item.status.value}", flush=True
                    )
    finally:
        for lane in lanes:
            lane.close()


class Repetitions:
    """A GPU's share of the plan, repeated: the k-th outcome of a cell belongs to the k-th run."""

    def __init__(
        self, testbed: Testbed, cells: list[Cell], times: int, folder: Path, settings: Settings, label: str
    ) -> None:
        self.testbed, self.cells, self.times = testbed, cells, times
        self.done = 0
        self._seen: dict[str, int] = {}
        header = make_header(
            testbed.environment, RunNames(trigger="adhoc", label=label), RequestedOptions(settings, testbed.execution)
        )
        began = datetime.fromisoformat(header.started_at)
        self._writers = []
        for number in range(times):
            # Start times differ by a second, so that the runs are ordered.
            started_at = (began + timedelta(seconds=number)).isoformat(timespec="seconds")
            named = replace(
                header, run_id=new_run_id(), started_at=started_at, label=f"{label}, {number + 1} of {times}"
            )
            writer = BundleWriter(folder, named, cells)
            writer.environment(environment_id(testbed.environment), testbed.environment)
            self._writers.append(writer)

    def writer_of(self, cell: Cell) -> BundleWriter:
        """The bundle for the next outcome of a cell."""
        number = self._seen.get(cell.cell_id, 0)
        self._seen[cell.cell_id] = number + 1
        self.done += 1
        return self._writers[number]

    def close(self) -> None:
        """Closes the bundles of complete runs; incomplete ones stay open, as after an interruption."""
        for number, writer in enumerate(self._writers):
            if all(self._seen.get(cell.cell_id, 0) > number for cell in self.cells):
                writer.close(now())
            else:
                writer.abandon()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--gpus")
    parser.add_argument("--device", choices=["cuda", "cpu"])
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=200)
    parser.add_argument("--max-s", type=float, default=float("inf"), help="start no cell after this")
    parser.add_argument("--costs", type=Path, help="bundles to learn from what cells take")
    parser.add_argument("--label", default="the same code again")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""`inductor-watch bisect`: which torch build, or which commit, changed one cell."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collector.metrics import METRICS
from collector.vocabulary import DTYPES, Phase
from jobs.builds.options import Making, making_options
from jobs.option_groups import Selection
from jobs.options import json_option

if TYPE_CHECKING:
    from jobs.bisection import Answer
    from jobs.bisection_judges import Judge
    from jobs.bisection_places import Checkouts, TorchBuilds
    from jobs.builds.request import Request

#: What looks for a cell that broke, instead of one that got slower.
STATUS = "status"


class InconclusiveError(click.ClickException):
    """The measurements do not tell; what they do tell has been printed."""

    exit_code = 3


@click.command(
    help="Find the torch build that changed a cell: runs of both ends and of builds between, as many as it takes to tell "
    "noise from change. With --run the commits of a checkout instead. The same command again goes on where it was stopped."
)
@click.option("--model", required=True, help="One model of `inductor-watch zoo`, or module:function.")
@click.option("--config", required=True, metavar="NAME[+key=value...]", help="One template or mode.")
@click.option("--suite", help="Where models of two suites have this name.")
@click.option("--phase", type=click.Choice([phase.value for phase in Phase]), help="[inference]")
@click.option("--dtype", type=click.Choice(DTYPES), help="[bfloat16 on a GPU, float32 on a CPU]")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="[the GPU if there is one]")
@click.option("--batch-size", type=click.IntRange(min=1), help="[the model's own]")
@click.option("--metric", type=click.Choice([*METRICS, STATUS]), default="compiled_ms", show_default=True)
@click.option("--smallest", type=click.FloatRange(min=0, min_open=True), help="The change that matters. [0.05 is 5 %]")
@click.option("--good", required=True, metavar="VERSION|COMMIT", help="The older end.")
@click.option("--bad", required=True, metavar="VERSION|COMMIT", help="The newer end.")
@click.option("--torch", "versions", multiple=True, metavar="VERSION", help="A build between. [what the index has]")
@click.option("--run", "prepare", metavar="COMMAND", help="Prepares $INDUCTOR_WATCH_COMMIT; run by sh in --repo-dir.")
@click.option("--repo-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The clone for --run.")
@making_options
@click.option("--samples", type=click.IntRange(min=5), default=30, show_default=True, help="Eager/compiled pairs.")
@click.option("--timeout", type=click.FloatRange(min=1), default=600, show_default=True, help="Seconds a run may take.")
@click.option(
    "--replicates", type=click.IntRange(min=2), default=3, show_default=True, help="Runs of each at the least."
)
@click.option("--most", type=click.IntRange(min=2), default=12, show_default=True, help="Runs of each at the most.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bisect"),
    show_default=True,
    help="Folder for the log (bisect.jsonl) and the bundles.",
)
@json_option
def command(
    model: str,
    config: str,
    suite: str | None,
    phase: str | None,
    dtype: str | None,
    device: str | None,
    batch_size: int | None,
    metric: str,
    smallest: float | None,
    good: str,
    bad: str,
    versions: tuple[str, ...],
    prepare: str | None,
    repo_dir: Path | None,
    making: Making,
    samples: int,
    timeout: float,
    replicates: int,
    most: int,
    out: Path,
    as_json: bool,
) -> None:
    """Bisects and prints what was found, with its figures and what to do next."""
    from collector.settings import Settings
    from collector.spelling import parse_config
    from jobs.bisection import Bisection
    from jobs.bisection_log import BisectionLog
    from jobs.builds.request import Request
    from jobs.runner import Pace, RunNames

    if most < replicates:
        raise click.UsageError("--most is less than --replicates")
    if (prepare is None) != (repo_dir is None):
        raise click.UsageError("--run and --repo-dir go together: the command, and the clone that it prepares")
    if prepare is not None and versions:
        raise click.UsageError("--torch goes with torch builds: leave it out, or leave out --run")
    parse_config(config)
    most = replicates if metric == STATUS else most  # where runs disagree on a status, further ones do not settle it
    selection = Selection((suite,) if suite else (), (model,), (phase,) if phase else (), dtype, device, batch_size)
    names = RunNames(branch="bisect", trigger="bisect")
    request = Request(selection, (config,), names, Settings(rounds=samples, timeout_s=timeout), Pace())
    candidates = _candidates(good, bad, versions, repo_dir, making)
    place = _place(prepare, repo_dir, making, request, metric, out)
    asked = {"request": request.to_json(), "metric": metric, "builds": candidates, "smallest": smallest, "run": prepare}
    judge = _judge(metric, smallest, len(candidates), replicates, most)
    log = BisectionLog(out / "bisect.jsonl", asked | {"replicates": replicates, "most": most})
    search = Bisection(
        candidates, place.measure, judge, log, _tell, least=replicates, most=most, in_turn=prepare is None
    )
    try:
        answer = search.run()
    except KeyboardInterrupt:
        click.echo("interrupted: the same command goes on", err=True)
        raise click.exceptions.Exit(130) from None
    shas = {name: log.runs_of(name)[0].commit for name in (answer.last_good, answer.first_bad)}
    if as_json:
        click.echo(json.dumps({**answer.to_json(), "commits": shas, "log": str(log.path)}, indent=2))
    else:
        for line in _lines(answer, shas, out, model, config):
            click.echo(line)
    if answer.word == "inconclusive":
        raise InconclusiveError(_why(answer))


def _candidates(good: str, bad: str, versions: tuple[str, ...], repo_dir: Path | None, making: Making) -> list[str]:
    from jobs.bisection_candidates import builds_between, commits_between

    if repo_dir is None:
        return builds_between(good, bad, versions, making.origin)
    return commits_between(repo_dir, good, bad)


def _place(
    prepare: str | None, repo_dir: Path | None, making: Making, request: Request, metric: str, out: Path
) -> TorchBuilds | Checkouts:
    from jobs.bisection_places import Checkouts, TorchBuilds

    if prepare is None or repo_dir is None:
        return TorchBuilds(making.environments(request.selection.device), request, metric, out)
    return Checkouts(repo_dir, prepare, making.python or Path(sys.executable), request, metric, out)


def _judge(metric: str, smallest: float | None, builds: int, least: int, most: int) -> Judge:
    from analysis.bisection import level_of, looks
    from jobs.bisection_judges import MetricJudge, StatusJudge

    if metric == STATUS:
        return StatusJudge()
    return MetricJudge(metric, level_of(builds, len(looks(least, most))), smallest)


def _lines(answer: Answer, shas: dict[str, str], out: Path, model: str, config: str) -> list[str]:
    """The answer for a person."""
    if answer.step is None:
        return []
    last, first = answer.last_good, answer.first_bad
    return [
        f"last good  {last}  {shas[last][:12]}",
        f"first bad  {first}  {shas[first][:12]}"
        + (f", or one of {', '.join(answer.between)}" if answer.between else ""),
        f"between them: {answer.step.said}",
        *(f"not decided: {name}: {why}" for name, why in answer.between.items()),
        "look at both:",
        f"  inductor-watch ingest {_quoted(out)}",
        f"  inductor-watch compare bisect@{shas[last][:12]} bisect@{shas[first][:12]}",
        "what landed between them:",
        f"  git log {shas[last]}..{shas[first]}",
        "measure one of them again:",
        f"  inductor-watch backfill --torch {_quoted(first)} --model {_quoted(model)} --config {_quoted(config)}"
        if first != shas[first]
        else f"  git checkout {first}",
    ]


def _quoted(text: Any) -> str:
    from jobs.terminal import one_line

    return one_line(shlex.quote(str(text)))


def _why(answer: Answer) -> str:
    if answer.step is not None:
        return f"inconclusive: {', '.join(answer.between)} could not be decided; more runs (--most) may tell"
    if answer.ends.word == "same":
        return f"inconclusive: good and bad do not differ by what matters: {answer.ends.said}"
    return f"inconclusive: good and bad are not told apart: {answer.ends.said}; more runs (--most) may tell"


def _tell(line: str) -> None:
    from jobs.terminal import one_line

    click.echo(one_line(line), err=True)

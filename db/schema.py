"""The tables. `id` is an integer key; `run`, `cell`, ... refer to one. `run_id`, `cell_id`, ... are the public names.

NULL means "not measured" everywhere. A cell that was planned and has no measurement is missing. Settings that only SQLite
understands are dialect options. The view `results` joins the names to the measurements.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    Table,
    Text,
    literal_column,
    select,
)
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from collector.metrics import METRICS
from db.stored_values import MaskedFingerprint, MaskedJson, MaskedText, PackedText

#: Metrics that tables and histories show unless others are asked for.
HISTORY_METRICS = ("speedup", "compiled_ms", "compiled_kernel_ms", "compile_cold_s")
#: Metrics that `summaries` has a geometric mean of, and those that it has a mean of.
GEOMEANS = tuple(name for name, metric in METRICS.items() if metric.average == "geomean")
MEANS = tuple(name for name, metric in METRICS.items() if metric.average == "mean")

#: Rows in the order of the primary key: the rows of a run lie side by side.
CLUSTERED = {"sqlite_with_rowid": False}
#: A server sorts and compares texts by their bytes, as SQLite does: equal data gives equal answers.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")


class Base(DeclarativeBase):
    """The registry of all tables. Every constraint has a name, so that a later migration can refer to it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: TEXT, float: Double, dict[str, Any]: JSON, bytes: LargeBinary}  # noqa: RUF012


class SchemaVersion(Base):
    """The version of the schema (`db.maintenance.migrate`), in one row. Table and column are named as in the first databases."""

    __tablename__ = "alembic_version"
    version_num: Mapped[str] = mapped_column(primary_key=True)


class Meta(Base):
    """Facts about the database itself; `revision` counts the changes of its data."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Commit(Base):
    """A commit of a repository under watch.

    `position` is its place in the line of commits that were imported from a repository (0 is the oldest of them), NULL
    where that is not known; `committed_at` is when it landed, `author_date` when it was written.
    """

    __tablename__ = "commits"
    __table_args__ = (
        Unique("repo", "sha"),
        Index("ix_commits_sha", "sha"),
        Index("ix_commits_pr", "repo", "pr_number"),
        Index("ix_commits_position", "repo", "position"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    repo: Mapped[str] = mapped_column(MaskedText)
    sha: Mapped[str]
    author_date: Mapped[float | None]
    title: Mapped[str | None] = mapped_column(MaskedText)
    pr_number: Mapped[int | None]
    position: Mapped[int | None]
    committed_at: Mapped[float | None]


class CommitLink(Base):
    """A link between two commits: `commit` reverts `target`, or lands it again; `kind` is `reverts` or `relands`."""

    __tablename__ = "commit_links"
    __table_args__ = (Index("ix_commit_links_target", "target"), CLUSTERED)
    commit: Mapped[int] = mapped_column(ForeignKey("commits.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[int] = mapped_column(ForeignKey("commits.id"), primary_key=True)


class Tag(Base):
    """A name that a repository gives one commit for good, such as `v2.9.1`.

    The commit need not be stored, or may be stored later: a release is measured after it was tagged, and is on no main line.
    """

    __tablename__ = "tags"
    __table_args__ = (Index("ix_tags_name", "name"), Index("ix_tags_sha", "sha"), CLUSTERED)
    repo: Mapped[str] = mapped_column(MaskedText, primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    sha: Mapped[str]


class Branch(Base):
    """A branch of a repository. `start` is the commit at which it left the main line, NULL if nobody named it."""

    __tablename__ = "branches"
    __table_args__ = (Unique("repo", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    repo: Mapped[str] = mapped_column(MaskedText)
    name: Mapped[str] = mapped_column(MaskedText)
    start: Mapped[int | None] = mapped_column(ForeignKey("commits.id"))


class Testbed(Base):
    """The facts about a machine that must be equal for latencies to be comparable; `testbed_id` is the hash of `data`."""

    __tablename__ = "testbeds"
    id: Mapped[int] = mapped_column(primary_key=True)
    testbed_id: Mapped[str] = mapped_column(unique=True)
    data: Mapped[dict[str, Any]] = mapped_column(MaskedJson)


class Environment(Base):
    """A whole fingerprint, libraries included. `data` is NULL where the bundle lost the record."""

    __tablename__ = "environments"
    id: Mapped[int] = mapped_column(primary_key=True)
    environment_id: Mapped[str] = mapped_column(unique=True)
    data: Mapped[dict[str, Any] | None] = mapped_column(MaskedFingerprint)


class Program(Base):
    """All effective options of a config under an installed torch. `options` is NULL where the bundle lost the record."""

    __tablename__ = "programs"
    id: Mapped[int] = mapped_column(primary_key=True)
    program_id: Mapped[str] = mapped_column(unique=True)
    options: Mapped[dict[str, Any] | None] = mapped_column(MaskedJson)


class CodeRow(Base):
    """The generated code of a cell: `graphs` is JSON, as `collector.code.Code` has it. Equal code is kept once."""

    __tablename__ = "codes"
    code_id: Mapped[str] = mapped_column(primary_key=True)
    graphs: Mapped[str] = mapped_column(PackedText)


class CodeText(Base):
    """The text of a kernel or a wrapper. A kernel that does not change from night to night is kept once."""

    __tablename__ = "code_texts"
    text_id: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(PackedText)


class ConfigRow(Base):
    """A config as it was requested. Two requests may share a name, never a `config_id`."""

    __tablename__ = "configs"
    id: Mapped[int] = mapped_column(primary_key=True)
    config_id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    request: Mapped[dict[str, Any]] = mapped_column(MaskedJson)


class Model(Base):
    """A model of a suite."""

    __tablename__ = "models"
    __table_args__ = (Unique("suite", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    suite: Mapped[str]
    name: Mapped[str]


class CellRow(Base):
    """A cell: a model in one phase, dtype, device, batch size and config."""

    __tablename__ = "cells"
    __table_args__ = (Index("ix_cells_model", "model"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[str] = mapped_column(unique=True)
    model: Mapped[int] = mapped_column(ForeignKey("models.id"))
    phase: Mapped[str]
    dtype: Mapped[str]
    device: Mapped[str]
    batch_size: Mapped[int]
    config: Mapped[int] = mapped_column(ForeignKey("configs.id"))


class Run(Base):
    """One pass over a plan. Ingest keeps the counts, which are of cells; `lines` is the number of measurements in the bundle.

    `night` is shared by the runs that several GPUs make of one plan, else it is the `run_id`; `ci_url` leads to the job
    that measured. Both have a default, since SQLite cannot add a NOT NULL column without one. `usage` says how the run used
    its machine, NULL where that is not known.
    """

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_branch", "branch", "started_at"),
        Index("ix_runs_started", "started_at"),
        Index("ix_runs_commit", "commit"),
        Index("ix_runs_night", "night", "started_at"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(unique=True)
    branch: Mapped[str] = mapped_column(MaskedText)
    commit: Mapped[int] = mapped_column(ForeignKey("commits.id"))
    testbed: Mapped[int] = mapped_column(ForeignKey("testbeds.id"))
    trigger: Mapped[str] = mapped_column(MaskedText)
    label: Mapped[str] = mapped_column(MaskedText)
    attempt: Mapped[int]
    started_at: Mapped[float]
    finished_at: Mapped[float | None]
    tool_version: Mapped[str]
    bundle: Mapped[str] = mapped_column(MaskedText)
    lines: Mapped[int]
    planned: Mapped[int]
    measured: Mapped[int]
    statuses: Mapped[dict[str, Any]]
    night: Mapped[str] = mapped_column(server_default="")
    ci_url: Mapped[str] = mapped_column(MaskedText, server_default="")
    usage: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class Planned(Base):
    """A cell that a run planned and has no measurement of. The index finds the runs in which a cell went missing.

    Ingest deletes the row when it stores the measurement: a run expects the cells here and the cells that it measured.
    """

    __tablename__ = "planned"
    __table_args__ = (Index("ix_planned_cell", "cell", "run"), CLUSTERED)
    run: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    cell: Mapped[int] = mapped_column(ForeignKey("cells.id"), primary_key=True)


#: The status of each measurement, and a column for each metric of `collector.metrics`.
#: `throttled` has the reasons that held the GPU's clocks down right after the timed rounds, separated by commas. It is
#: empty for no reason, and NULL where the reasons were not read (a CPU). `version` is the attempt and line of the bundle that
#: the row comes from (`db.incoming.version_of`): the highest version of a run wins. `code_id` names the generated code.
measurements = Table(
    "measurements",
    Base.metadata,
    Column("run", Integer, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("cell", Integer, ForeignKey("cells.id"), primary_key=True),
    Column("replicate", Integer, primary_key=True),
    Column("status", TEXT, nullable=False),
    Column("program", Integer, ForeignKey("programs.id")),
    Column("environment", Integer, ForeignKey("environments.id")),
    Column("started_at", Double, nullable=False),
    Column("wall_s", Double, nullable=False),
    Column("throttled", TEXT),
    Column("version", Integer, server_default="0", nullable=False),
    *(Column(name, Double) for name in METRICS),
    Column("stage", TEXT),
    Column("exception", MaskedText),
    Column("message", MaskedText),
    Column("hint", MaskedText),
    Column("code_id", TEXT),
    # A model's history reads its rows by cell.
    Index("ix_measurements_cell", "cell", "run"),
    sqlite_with_rowid=False,
)


def _of_measurement() -> ForeignKeyConstraint:
    key = ("run", "cell", "replicate")
    return ForeignKeyConstraint(key, [f"measurements.{name}" for name in key], ondelete="CASCADE")


class Evidence(Base):
    """The evidence for a measurement: details as JSON text and the end of the log, both compressed.

    Not clustered: its rows are long, and SQLite keeps long rows better in an ordinary table.
    """

    __tablename__ = "evidence"
    __table_args__ = (_of_measurement(),)
    run: Mapped[int] = mapped_column(primary_key=True)
    cell: Mapped[int] = mapped_column(primary_key=True)
    replicate: Mapped[int] = mapped_column(primary_key=True)
    details: Mapped[str | None] = mapped_column(PackedText)
    log_tail: Mapped[str | None] = mapped_column(PackedText)


class Samples(Base):
    """Raw samples of one metric. `data` may be thinned out with age; `count` and `spread` (relative, robust) stay."""

    __tablename__ = "samples"
    __table_args__ = (_of_measurement(), CLUSTERED)
    run: Mapped[int] = mapped_column(primary_key=True)
    cell: Mapped[int] = mapped_column(primary_key=True)
    replicate: Mapped[int] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]
    spread: Mapped[float | None]
    number_format: Mapped[str | None]
    data: Mapped[bytes | None]


#: A run's averages over the models of one suite, phase, dtype, device and config; ingest writes them with the rows.
#: `planned` counts cells that were planned or measured, so `planned - measured` are missing. The averages are over the
#: passing cells that have the metric, `n_<metric>` of them: geometric means of `GEOMEANS` (positive values only), means of
#: `MEANS`.
summaries = Table(
    "summaries",
    Base.metadata,
    Column("run", Integer, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    *(Column(name, TEXT, primary_key=True) for name in ("suite", "phase", "dtype", "device")),
    Column("config", Integer, ForeignKey("configs.id"), primary_key=True),
    *(Column(name, Integer, nullable=False) for name in ("planned", "measured", "passed", "failed", "not_applicable")),
    *(Column(f"n_{name}", Integer, nullable=False, server_default="0") for name in (*GEOMEANS, *MEANS)),
    *(Column(name, Double) for name in (*GEOMEANS, *MEANS)),
    sqlite_with_rowid=False,
)


class Series(Base):
    """A cell on one branch and testbed, over commits. Each regression belongs to a series."""

    __tablename__ = "series"
    __table_args__ = (Unique("cell", "branch", "testbed"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    cell: Mapped[int] = mapped_column(ForeignKey("cells.id"))
    branch: Mapped[int] = mapped_column(ForeignKey("branches.id"))
    testbed: Mapped[int] = mapped_column(ForeignKey("testbeds.id"))


class Regression(Base):
    """A record of a regression. It keeps the base that it was found with, so it never closes by itself.

    `metric` is empty where a status changed. `base_run` is the last run before the onset and `onset_run` the first run
    after it; the values (in the metric's unit) stay when old runs are dropped.
    """

    __tablename__ = "regressions"
    __table_args__ = (Index("ix_regressions_state", "state"), Index("ix_regressions_series", "series"))
    id: Mapped[int] = mapped_column(primary_key=True)
    regression_id: Mapped[str] = mapped_column(unique=True)
    series: Mapped[int] = mapped_column(ForeignKey("series.id"))
    metric: Mapped[str]
    kind: Mapped[str]
    state: Mapped[str]
    base_run: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"))
    onset_run: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"))
    base_commit: Mapped[int | None] = mapped_column(ForeignKey("commits.id"))
    onset_commit: Mapped[int | None] = mapped_column(ForeignKey("commits.id"))
    base_value: Mapped[float | None]
    new_value: Mapped[float | None]
    opened_at: Mapped[float]
    owner: Mapped[str] = mapped_column(MaskedText)
    link: Mapped[str] = mapped_column(MaskedText)


class RegressionEvent(Base):
    """An event in the history of a regression: who moved it from which state to which, when and why."""

    __tablename__ = "regression_events"
    __table_args__ = (Index("ix_regression_events_regression", "regression"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    regression: Mapped[int] = mapped_column(ForeignKey("regressions.id", ondelete="CASCADE"))
    at: Mapped[float]
    author: Mapped[str] = mapped_column(MaskedText)
    from_state: Mapped[str | None]
    to_state: Mapped[str]
    text: Mapped[str] = mapped_column(MaskedText)


def results_query() -> Select[Any]:
    """Return the select behind the view `results`: every measurement with the names of its run and cell."""
    row = measurements.c
    of_run = (Run.run_id, Run.night, Run.branch, Commit.repo, Commit.sha, Run.started_at.label("run_started_at"))
    of_cell = (CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)
    is_compiled = (Samples.run == row.run) & (Samples.cell == row.cell) & (Samples.replicate == row.replicate)
    return (
        select(*of_run, Testbed.testbed_id, CellRow.cell_id, Model.suite, Model.name.label("model"), *of_cell)
        .add_columns(ConfigRow.name.label("config"), ConfigRow.config_id, row.replicate, row.status)
        .add_columns(row.started_at, row.wall_s, Program.program_id, Environment.environment_id)
        .add_columns(row.stage, row.exception, row.message, row.hint, row.code_id, row.throttled)
        .add_columns(Samples.spread)
        .add_columns(*(row[name] for name in METRICS))
        .select_from(measurements)
        .join(Run, Run.id == row.run)
        .join(Commit, Commit.id == Run.commit)
        .join(Testbed, Testbed.id == Run.testbed)
        .join(CellRow, CellRow.id == row.cell)
        .join(Model, Model.id == CellRow.model)
        .join(ConfigRow, ConfigRow.id == CellRow.config)
        .outerjoin(Program, Program.id == row.program)
        .outerjoin(Environment, Environment.id == row.environment)
        .outerjoin(Samples, is_compiled & (Samples.metric == literal_column("'compiled_ms'")))
    )


def create_results(dialect: Dialect) -> str:
    """Return the statement that creates the view `results`."""
    return f"CREATE VIEW results AS {results_query().compile(dialect=dialect)}"


#: The view, for queries. `spread` is the robust relative spread of the samples of `compiled_ms`.
results = Table(
    "results", MetaData(), *(Column(column.name, column.type) for column in results_query().selected_columns)
)

"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From an empty database."""
    _names()
    _runs()
    _rows()
    _sums()
    op.execute("INSERT INTO meta (key, value) VALUES ('revision', '0')")


def _names() -> None:
    """What people and hashes name."""
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "commits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("author_date", sa.Double(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("pr_number", sa.Integer(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_commits"),
        sa.UniqueConstraint("repo", "sha", name="uq_commits_repo_sha"),
    )
    op.create_index("ix_commits_sha", "commits", ["sha"])
    op.create_table(
        "testbeds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("testbed_id", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_testbeds"),
        sa.UniqueConstraint("testbed_id", name="uq_testbeds_testbed_id"),
    )
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_environments"),
        sa.UniqueConstraint("environment_id", name="uq_environments_environment_id"),
    )
    op.create_table(
        "programs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("program_id", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_programs"),
        sa.UniqueConstraint("program_id", name="uq_programs_program_id"),
    )
    op.create_table(
        "configs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("config_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_configs"),
        sa.UniqueConstraint("config_id", name="uq_configs_config_id"),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
        sa.UniqueConstraint("suite", "name", name="uq_models_suite_name"),
    )
    op.create_table(
        "cells",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cell_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("batch_size", sa.Integer(), nullable=False),
        sa.Column("config", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cells"),
        sa.ForeignKeyConstraint(["config"], ["configs.id"], name="fk_cells_config"),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name="fk_cells_model"),
        sa.UniqueConstraint("cell_id", name="uq_cells_cell_id"),
    )
    op.create_index("ix_cells_model", "cells", ["model"])


def _runs() -> None:
    """Runs and their plans."""
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("commit", sa.Integer(), nullable=False),
        sa.Column("testbed", sa.Integer(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("tool_version", sa.Text(), nullable=False),
        sa.Column("bundle", sa.Text(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("planned", sa.Integer(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("statuses", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.ForeignKeyConstraint(["commit"], ["commits.id"], name="fk_runs_commit"),
        sa.ForeignKeyConstraint(["testbed"], ["testbeds.id"], name="fk_runs_testbed"),
        sa.UniqueConstraint("run_id", name="uq_runs_run_id"),
    )
    op.create_index("ix_runs_branch", "runs", ["branch", "started_at"])
    op.create_index("ix_runs_commit", "runs", ["commit"])
    op.create_index("ix_runs_started", "runs", ["started_at"])
    op.create_table(
        "planned",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("cell", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run", "cell", name="pk_planned"),
        sa.ForeignKeyConstraint(["cell"], ["cells.id"], name="fk_planned_cell"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_planned_run", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_planned_cell", "planned", ["cell", "run"])


def _rows() -> None:
    """Measurements, and what lies behind them."""
    op.create_table(
        "measurements",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("cell", sa.Integer(), nullable=False),
        sa.Column("replicate", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("program", sa.Integer(), nullable=True),
        sa.Column("environment", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("eager_ms", sa.Double(), nullable=True),
        sa.Column("compiled_ms", sa.Double(), nullable=True),
        sa.Column("speedup", sa.Double(), nullable=True),
        sa.Column("eager_kernel_ms", sa.Double(), nullable=True),
        sa.Column("compiled_kernel_ms", sa.Double(), nullable=True),
        sa.Column("device_speedup", sa.Double(), nullable=True),
        sa.Column("compile_cold_s", sa.Double(), nullable=True),
        sa.Column("eager_peak_bytes", sa.Double(), nullable=True),
        sa.Column("compiled_peak_bytes", sa.Double(), nullable=True),
        sa.Column("compression", sa.Double(), nullable=True),
        sa.Column("graphs", sa.Double(), nullable=True),
        sa.Column("graph_breaks", sa.Double(), nullable=True),
        sa.Column("recompiles", sa.Double(), nullable=True),
        sa.Column("cudagraph_skips", sa.Double(), nullable=True),
        sa.Column("cudagraph_partitions", sa.Double(), nullable=True),
        sa.Column("kernels_generated", sa.Double(), nullable=True),
        sa.Column("kernels_extern", sa.Double(), nullable=True),
        sa.Column("error_rmse_ratio", sa.Double(), nullable=True),
        sa.Column("cosine", sa.Double(), nullable=True),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("exception", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("hint", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run", "cell", "replicate", name="pk_measurements"),
        sa.ForeignKeyConstraint(["cell"], ["cells.id"], name="fk_measurements_cell"),
        sa.ForeignKeyConstraint(["environment"], ["environments.id"], name="fk_measurements_environment"),
        sa.ForeignKeyConstraint(["program"], ["programs.id"], name="fk_measurements_program"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_measurements_run", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_measurements_history",
        "measurements",
        [
            "cell",
            "run",
            "replicate",
            "status",
            "program",
            "speedup",
            "device_speedup",
            "compiled_ms",
            "compiled_kernel_ms",
            "compile_cold_s",
            "compression",
        ],
    )
    op.create_table(
        "evidence",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("cell", sa.Integer(), nullable=False),
        sa.Column("replicate", sa.Integer(), nullable=False),
        sa.Column("details", sa.LargeBinary(), nullable=True),
        sa.Column("log_tail", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("run", "cell", "replicate", name="pk_evidence"),
        sa.ForeignKeyConstraint(
            ["run", "cell", "replicate"],
            ["measurements.run", "measurements.cell", "measurements.replicate"],
            name="fk_evidence_run_cell_replicate",
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "samples",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("cell", sa.Integer(), nullable=False),
        sa.Column("replicate", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("spread", sa.Double(), nullable=True),
        sa.Column("number_format", sa.Text(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("run", "cell", "replicate", "metric", name="pk_samples"),
        sa.ForeignKeyConstraint(
            ["run", "cell", "replicate"],
            ["measurements.run", "measurements.cell", "measurements.replicate"],
            name="fk_samples_run_cell_replicate",
            ondelete="CASCADE",
        ),
        sqlite_with_rowid=False,
    )


def _sums() -> None:
    """Sums that ingest keeps."""
    op.create_table(
        "summaries",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("config", sa.Integer(), nullable=False),
        sa.Column("planned", sa.Integer(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("not_applicable", sa.Integer(), nullable=False),
        sa.Column("n_speedup", sa.Integer(), nullable=False),
        sa.Column("ln_speedup", sa.Double(), nullable=False),
        sa.Column("n_device_speedup", sa.Integer(), nullable=False),
        sa.Column("ln_device_speedup", sa.Double(), nullable=False),
        sa.Column("n_compiled_ms", sa.Integer(), nullable=False),
        sa.Column("ln_compiled_ms", sa.Double(), nullable=False),
        sa.Column("n_compiled_kernel_ms", sa.Integer(), nullable=False),
        sa.Column("ln_compiled_kernel_ms", sa.Double(), nullable=False),
        sa.Column("n_compression", sa.Integer(), nullable=False),
        sa.Column("ln_compression", sa.Double(), nullable=False),
        sa.Column("n_compile_cold_s", sa.Integer(), nullable=False),
        sa.Column("sum_compile_cold_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("run", "suite", "phase", "dtype", "device", "config", name="pk_summaries"),
        sa.ForeignKeyConstraint(["config"], ["configs.id"], name="fk_summaries_config"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_summaries_run", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """To an empty database: what was in it is in the bundles."""
    for table in (
        "summaries",
        "samples",
        "evidence",
        "measurements",
        "planned",
        "runs",
        "cells",
        "models",
        "configs",
        "programs",
        "environments",
        "testbeds",
        "commits",
        "meta",
    ):
        op.drop_table(table)

"""Alembic runs this for every command, on the connection and in the transaction of `db.maintenance.migrate`."""

from __future__ import annotations

from alembic import context

from db.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

"""Alembic's environment; `db.maintenance.migrate` drives it."""

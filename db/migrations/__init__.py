"""Alembic's environment; `db.migrate` drives it."""

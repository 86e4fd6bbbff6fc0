"""The store: schema, migrations, ingest, queries."""

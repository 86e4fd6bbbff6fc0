"""The store: schema, ingest, queries."""

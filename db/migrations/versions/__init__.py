"""One module per version of the schema, written by hand and never changed after a release."""

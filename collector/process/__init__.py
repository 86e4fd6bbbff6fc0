"""One process per cell: worker, fork server, and what passes between them."""

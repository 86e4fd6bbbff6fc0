"""One process per cell: the worker, the fork server, and the messages between them."""

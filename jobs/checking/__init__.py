"""`inductor-watch check`: compile two commits of a clone, compare their code, and time cells in turns where it differs."""

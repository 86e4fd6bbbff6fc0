"""`inductor-watch check`: two commits of a clone, compiled, compared by their code, and timed in turn where it differs."""

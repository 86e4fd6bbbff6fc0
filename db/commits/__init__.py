"""The commits of a repository and their order."""

"""Torch builds that are not installed: where they come from, and an environment for each."""

"""Torch builds that are not installed: their source, and an environment for each."""

"""Builds of torch that are not installed: where they come from, an environment for each, and measuring in it."""

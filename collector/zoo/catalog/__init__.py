"""The models, one table a suite. No table imports torch."""

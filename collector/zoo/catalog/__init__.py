"""The tables of models, one for each suite. No table imports torch."""

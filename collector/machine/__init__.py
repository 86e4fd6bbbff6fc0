"""The machine that measures: its environment, its cores, its GPU."""

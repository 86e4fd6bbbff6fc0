"""Pure numerics over arrays: numpy and scipy only."""

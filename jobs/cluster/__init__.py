"""A night on the nodes of a Ray cluster (`nightly --executor ray`): Ray starts tasks, each measures with the host's own pool."""

"""A night on the nodes of a Ray cluster (`nightly --executor ray`): each Ray task measures a shard and returns its bundles."""

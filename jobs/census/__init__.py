"""Take a census: generate many cells in processes of `collector.census`, record them in a bundle, compare it with a night."""

"""Takes a census: many cells in the processes of `collector.census`, into a bundle and compared with a night."""

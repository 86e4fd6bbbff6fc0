"""Run a plan on the devices of one host."""

"""What happens around measuring: plan, pool, nightly, and the command line."""

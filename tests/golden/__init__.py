"""The answers to some questions about the shipped bundles, as they were before the code was reorganised."""

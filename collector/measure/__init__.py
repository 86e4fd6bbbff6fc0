"""The stages of one cell, each in a module."""

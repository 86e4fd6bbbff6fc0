"""Tools for agents over the Model Context Protocol: several that read a store, and one that measures."""

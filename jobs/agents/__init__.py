"""What agents are served over the Model Context Protocol: tools that read a store, and one that measures."""

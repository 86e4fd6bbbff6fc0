"""The published site: pages without a server, made of the same comparisons, words and charts as the dashboard."""

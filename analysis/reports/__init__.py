"""Documents of a comparison: its facts, and their drawing as HTML and SVG, the same from pages and command line."""

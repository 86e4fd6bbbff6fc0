"""The parts of pages: words, pieces of HTML, tables and charts, the same on the dashboard and on the published site."""

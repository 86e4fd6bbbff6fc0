"""A small runner of GitHub Actions for tests: real shell steps, real expressions, artefacts and caches as folders."""

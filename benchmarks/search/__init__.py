"""How well, and how fast, the catalog finds what is looked for: ``python -m benchmarks.search``."""

"""Measures Holdfast beside its peers on one PostgreSQL, in one run: `python -m benchmarks`."""

"""Middleware of every request: its name, its trace, its size."""

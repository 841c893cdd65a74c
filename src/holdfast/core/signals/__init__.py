"""Signals, one module per kind: what each does to an instance."""

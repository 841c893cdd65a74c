"""Fixtures for pytest, found through the entry point `holdfast`."""

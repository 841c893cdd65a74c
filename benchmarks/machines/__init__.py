"""Measurements of machines: what they run, the processes that run it, and their populations."""

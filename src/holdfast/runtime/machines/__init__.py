"""Machines at run time: what happens around their transitions."""

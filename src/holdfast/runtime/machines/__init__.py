"""Machines: business objects that rest in states and are moved by events."""

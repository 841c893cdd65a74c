"""Queries for users: instances, steps and flows."""

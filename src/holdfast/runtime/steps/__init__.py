"""Processes that people take part in: what they see of an instance, and what they do with it."""

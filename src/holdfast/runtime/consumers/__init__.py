"""Consumers: services that take the facts of machines, here in the process, pushed to, or pulling them."""

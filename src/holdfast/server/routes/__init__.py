"""The routes, one noun per module."""

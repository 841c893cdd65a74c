"""JSON Schema checks, bounded in time."""

"""What surrounds every request: its name, its trace, its size."""

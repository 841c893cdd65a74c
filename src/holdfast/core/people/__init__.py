"""Human tasks: ownership, permissions, and the life of a task."""

"""Read contracts and patches, from files and from builders: the format, its rules, every problem with its place."""

"""The values of the kernel: statuses, state, signals, decisions, and the compiled program."""

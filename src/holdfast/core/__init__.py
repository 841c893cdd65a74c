"""The pure kernel: no I/O, no clock, no randomness. Ids are derived, time is a fact."""

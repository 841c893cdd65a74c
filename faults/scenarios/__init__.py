"""One module per scenario: a docstring that says what is done, and `run(profile, seed) -> list[Figure]`."""

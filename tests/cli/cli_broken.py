"""A module that cannot be imported, for the tests of the command line."""

raise RuntimeError("not today")

"""The one graph every door lowers to: its model, checks, expressions, compiler, hash and drawings."""

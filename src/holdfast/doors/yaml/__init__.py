"""Read YAML for the doors that take it: text to a tree with places, a tree to values by shapes, problems with places.

The codes of a door begin with its own prefix; those of YAML itself are the same for all.
"""

"""The doors: each reads one way of writing a workflow and lowers it to the graph.

`source.py` is what every door answers to, `registry.py` has a row for each.
"""

from holdfast.doors.source import Door, Source

__all__ = ["Door", "Source"]

"""The difference of two graphs of documents: by slot, by node and edge, and by meaning.

A graph of a document is read as parts: its nodes and edges, its slots, policies and tables, and what its contract says
beyond the graph. Each part has fields. Parts are compared by identity and field by field, so a difference leaves out
nothing that was written, and the difference of equal graphs is empty. Hashes, prepared lookups and the proof of the
envelope are left out: they follow from the parts.
"""

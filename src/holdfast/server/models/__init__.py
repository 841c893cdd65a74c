"""Models of the wire, one file per noun."""

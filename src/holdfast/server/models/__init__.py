"""What goes over the wire, one file per noun."""

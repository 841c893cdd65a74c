"""Documents before they run: simulation of an effective graph."""

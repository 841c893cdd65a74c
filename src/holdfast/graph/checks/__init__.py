"""Static checks of a graph, one module per kind of problem."""

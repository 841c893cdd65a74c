"""From what a person wrote to the graph the kernel runs: model, expressions, checks, hash, rendering."""

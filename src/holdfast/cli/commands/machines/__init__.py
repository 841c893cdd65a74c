"""The commands of machines: what moves them, what takes their facts, what is told of them."""

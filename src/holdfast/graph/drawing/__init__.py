"""Drawings of a graph: Mermaid, and trees of text."""

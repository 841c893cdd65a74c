"""Views of a workflow for people: words, lines and lists made of rows already read; no view reads or draws."""

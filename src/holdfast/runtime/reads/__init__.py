"""Views of a caller: instances, searches, timelines, statistics."""

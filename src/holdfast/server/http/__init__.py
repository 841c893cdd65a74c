"""HTTP as such: connections, gate, problems, entity tags, pages, streams."""

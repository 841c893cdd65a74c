"""The runtime: the engine facade, the committer and its lanes, handlers, timers, recovery."""

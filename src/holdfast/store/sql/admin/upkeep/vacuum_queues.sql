-- Free the dead rows of the queues now: the server's own vacuum may come too late for tables that turn over so fast.
vacuum (skip_locked, truncate off) holdfast.work, holdfast.signals, holdfast.timers, holdfast.statistics_deltas

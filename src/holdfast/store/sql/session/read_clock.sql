-- The database's time, read once per commit: the `now` of every decision in it.
select holdfast.clock()

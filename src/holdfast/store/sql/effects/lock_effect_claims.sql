-- One claim at a time: two that counted at once would both find room at a target. A collision costs waiting, never more.
select pg_advisory_xact_lock(1751477606, 9)

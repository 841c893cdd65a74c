-- One process at a time builds a template; held until the connection closes.
select pg_advisory_lock(hashtextextended(%(template)s, 0))

-- How old the oldest transaction ids are that this database still has to freeze.
select 'transaction id', age(d.datfrozenxid)::bigint from pg_database d where d.datname = current_database()
union all
select 'multixact id', mxid_age(d.datminmxid)::bigint from pg_database d where d.datname = current_database()

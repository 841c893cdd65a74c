-- The transactions that may be writing deliveries now, in this database. Each that began before a consumer changed has ended when none is left.
select coalesce(jsonb_agg(distinct l.virtualtransaction), '[]')
from pg_catalog.pg_locks l
where l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
    and l.locktype = 'relation' and l.relation = 'holdfast.ack_consumers'::regclass and l.mode = 'RowExclusiveLock'
    and l.pid <> pg_backend_pid()

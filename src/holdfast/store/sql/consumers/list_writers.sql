-- The transactions that may be writing deliveries now. Each that began before a consumer changed has ended when none is left.
select coalesce(jsonb_agg(distinct l.virtualtransaction), '[]')
from pg_catalog.pg_locks l
where l.locktype = 'relation' and l.relation = 'holdfast.ack_consumers'::regclass and l.mode = 'RowExclusiveLock'
    and l.pid <> pg_backend_pid()

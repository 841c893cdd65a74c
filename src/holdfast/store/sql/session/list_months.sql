-- The months for which steps and events have a partition each.
select substr(c.relname, 7)
from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
where i.inhparent = 'holdfast.steps'::regclass and c.relname ~ '^steps_[0-9]{6}$' and exists (
    select from pg_catalog.pg_inherits e join pg_catalog.pg_class o on o.oid = e.inhrelid
    where e.inhparent = 'holdfast.events'::regclass and o.relname = 'events_' || substr(c.relname, 7))
order by 1

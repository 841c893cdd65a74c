-- The oldest open transactions of this database, prepared ones included; what belongs to others may be hidden.
select x.who, x.age, x.hidden from (
    select format('%s (process %s, %s)', a.usename, a.pid, coalesce(nullif(a.application_name, ''), 'no name')) as who,
        extract(epoch from clock_timestamp() - a.xact_start)::float8 as age, a.state is null as hidden
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid() and coalesce(a.backend_type, 'client backend') = 'client backend'
        and (a.xact_start is not null or a.state is null)
    union all
    select format('%s (prepared as %L)', p.owner, p.gid), extract(epoch from clock_timestamp() - p.prepared)::float8, false
    from pg_prepared_xacts p where p.database = current_database()
) x
order by x.age desc nulls first limit 20

-- Monthly partitions of the tables that grow with history, created ahead of need.
-- A default partition catches what has no month yet, so that nothing is lost; partition_alarm() reports it.

-- Every partition that should exist; the default one has no bounds and comes first.
create function holdfast.wanted_partitions(months_ahead int)
returns table (parent text, child text, options text, first timestamptz, next timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    return query
    select
        p.parent,
        p.parent || coalesce(to_char(m.first, '_YYYYMM'), '_default'),
        p.options,
        m.first,
        m.first + interval '1 month'
    from (values
        ('steps', 'fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05'),
        ('effects', 'fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05'),
        ('events', 'fillfactor = 100')
    ) p (parent, options)
    cross join (
        select n, case when n >= 0 then date_trunc('month', holdfast.clock()) + make_interval(months => n) end
        from generate_series(-1, months_ahead) n
    ) m (ahead, first)
    order by p.parent, m.ahead;
end
$$;

-- A worker may do to a month what it may do to the whole table: statements of the commit path name it.
create function holdfast.grant_month(parent text, child text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    changeable text;
begin
    execute format('grant select, insert on holdfast.%I to holdfast_worker', child);
    select string_agg(quote_ident(p.column_name), ', ' order by p.column_name) into changeable
    from information_schema.column_privileges p
    where p.table_schema = 'holdfast' and p.table_name = parent and p.grantee = 'holdfast_worker'
        and p.privilege_type = 'UPDATE';
    if changeable is not null then
        execute format('grant update (%s) on holdfast.%I to holdfast_worker', changeable, child);
    end if;
end
$$;

-- Refuse TRUNCATE to everybody, the owner included: retention deletes rows and drops months, nothing empties a table.
create function holdfast.refuse_truncate() returns trigger
language plpgsql as $$
begin
    raise exception 'Table holdfast.% is never truncated', tg_table_name
        using errcode = 'HF002', hint = 'Retention removes what is over: holdfast maintain.';
end
$$;

create function holdfast.forbid_truncate(guarded text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create trigger never_truncated before truncate on holdfast.%I'
        ' for each statement execute function holdfast.refuse_truncate()', guarded);
end
$$;

-- Attached, not created in place: that locks the parent against other schema changes only, while writers go on.
-- Rows that already fell into the default partition move over first. The lock timeout stays below the server's
-- deadlock_timeout, so that in a collision with writers this side gives way.
create function holdfast.attach_partition(parent text, child text, options text, first timestamptz, next timestamptz)
returns void
language plpgsql set search_path = pg_catalog, pg_temp set timezone = 'UTC' set lock_timeout = '500ms' as $$
declare
    rest text := parent || '_default';
    maintenance text := coalesce(current_setting('holdfast.maintenance', true), '');
begin
    execute format('create table holdfast.%I (like holdfast.%I including all) with (%s)', child, parent, options);
    execute format('alter table holdfast.%I enable row level security', child);
    execute format('alter table holdfast.%I force row level security', child);
    execute format('create policy worker on holdfast.%I to holdfast_worker using (true) with check (true)', child);
    perform holdfast.forbid_truncate(child);  -- the only guard that a partition does not take over from its table
    if first is null then
        execute format('alter table holdfast.%I attach partition holdfast.%I default', parent, child);
        return;
    end if;
    if parent in ('steps', 'events') then
        perform holdfast.grant_month(parent, child);
    end if;
    execute format('lock table holdfast.%I in access exclusive mode', rest);
    perform set_config('holdfast.maintenance', 'on', true);
    execute format(
        'with moved as (delete from holdfast.%I where created_at >= %L and created_at < %L returning *)'
        ' insert into holdfast.%I select * from moved', rest, first, next, child);
    perform set_config('holdfast.maintenance', maintenance, true);
    execute format('alter table holdfast.%I attach partition holdfast.%I for values from (%L) to (%L)',
        parent, child, first, next);
end
$$;

-- Safe from many processes at once. It fails rather than keep writers waiting: it comes months early, and whoever
-- calls it calls it again. Answers the partitions it made.
create function holdfast.ensure_partitions(months_ahead int default 3) returns setof text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    wanted record;
begin
    if not exists (
        select from holdfast.wanted_partitions(months_ahead) w where to_regclass('holdfast.' || w.child) is null
    ) then
        return;
    end if;
    lock table holdfast.schema_version in share row exclusive mode;
    for wanted in select w.* from holdfast.wanted_partitions(months_ahead) w loop
        if to_regclass('holdfast.' || wanted.child) is null then
            perform holdfast.attach_partition(
                wanted.parent, wanted.child, wanted.options, wanted.first, wanted.next);
            return next wanted.child;
        end if;
    end loop;
end
$$;

-- What maintenance watches: rows without a month of their own, and how many months are prepared.
create function holdfast.partition_alarm()
returns table (table_name text, default_rows bigint, months_ahead int)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    foreach table_name in array array['effects', 'events', 'steps'] loop
        execute format('select count(*) from holdfast.%I', table_name || '_default') into default_rows;
        select count(*) filter (where to_regclass('holdfast.' || w.child) is not null) - 1 into months_ahead
        from holdfast.wanted_partitions(24) w
        where w.parent = table_name and w.first is not null;
        return next;
    end loop;
end
$$;

revoke all on function
    holdfast.wanted_partitions, holdfast.grant_month, holdfast.attach_partition, holdfast.ensure_partitions,
    holdfast.partition_alarm, holdfast.refuse_truncate, holdfast.forbid_truncate
    from public;
grant execute on function holdfast.ensure_partitions, holdfast.partition_alarm to holdfast_worker;

select holdfast.forbid_truncate(c.relname)
from pg_catalog.pg_class c
where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p');

select holdfast.ensure_partitions();

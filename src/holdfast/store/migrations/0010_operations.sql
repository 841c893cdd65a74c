-- Upkeep: partitions that were missed, retention, and how far each task has come.
-- Removing history needs a role of its own, holdfast_maintenance: whoever may run workers need not be allowed to forget.
-- Everything goes in small batches that skip what somebody holds, so that two at once cost each other nothing.

do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'holdfast_maintenance') then
        begin
            create role holdfast_maintenance nologin;
        exception when duplicate_object or unique_violation then
            null;
        end;
    end if;
    if not pg_catalog.pg_has_role(current_user, 'holdfast_maintenance', 'usage') then
        grant holdfast_maintenance to current_user;
    end if;
end
$$;

-- One row per task: whoever finds it due moves `due_at` into the future and has that long for the next batches.
create table holdfast.upkeep (
    task text primary key,
    due_at timestamptz not null,
    position uuid,  -- where a pass over instances goes on; null: at the beginning
    runner text,
    finished_at timestamptz,
    error text
);

create table holdfast.upkeep_runs (
    id uuid primary key,
    task text not null,
    runner text not null,
    started_at timestamptz not null,
    finished_at timestamptz not null,
    result jsonb not null,
    error text
);
select holdfast.forbid_truncate('upkeep'), holdfast.forbid_truncate('upkeep_runs');
create index upkeep_runs_by_moment on holdfast.upkeep_runs (started_at);
create index dead_letters_resolved on holdfast.dead_letters (resolved_at) where resolved_at is not null;

-- The months of one table that have a partition, oldest first.
create function holdfast.monthly_partitions(parent text)
returns table (child text, first timestamptz, next timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    return query
    select c.relname::text, m.first, m.first + interval '1 month'
    from pg_inherits h
    join pg_class c on c.oid = h.inhrelid
    cross join lateral (select to_timestamp(right(c.relname, 6), 'YYYYMM') as first) m
    where h.inhparent = format('holdfast.%I', monthly_partitions.parent)::regclass
      and c.relname ~ ('^' || monthly_partitions.parent || '_\d{6}$')
    order by m.first;
end
$$;

-- Moves the oldest month of the rows in a default partition to a partition of its own; answers its name, null when
-- there is nothing to move. One month per call, because writers of that table wait meanwhile.
create function holdfast.move_default_month() returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
    wanted record;
    month timestamptz;
begin
    for wanted in select distinct w.parent, w.options from holdfast.wanted_partitions(0) w order by w.parent loop
        execute format('select date_trunc(''month'', min(created_at)) from holdfast.%I', wanted.parent || '_default')
            into month;
        if month is not null then
            lock table holdfast.schema_version in share row exclusive mode;
            perform holdfast.attach_partition(
                wanted.parent, wanted.parent || to_char(month, '_YYYYMM'), wanted.options, month,
                month + interval '1 month');
            return wanted.parent || to_char(month, '_YYYYMM');
        end if;
    end loop;
    return null;
end
$$;

-- An instance that still needs the rows of this partition: unfinished, or with an open dead letter, or with an effect
-- that was not delivered. It walks the unfinished ones organisation by organisation: finished history costs nothing.
create function holdfast.partition_holder(parent text, child text, next timestamptz) returns uuid
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
declare
    holder uuid;
begin
    execute format($query$
        with recursive orgs as (
            (select i.org_id from holdfast.instances i where i.status <> 'completed' order by i.org_id limit 1)
            union all
            select (select i.org_id from holdfast.instances i
                where i.status <> 'completed' and i.org_id > o.org_id order by i.org_id limit 1)
            from orgs o where o.org_id is not null
        )
        select i.id
        from orgs o
        cross join unnest(array['pending', 'running', 'suspended', 'dlq', 'rolling_back']) s(status)
        cross join lateral (
            select t.id from holdfast.instances t
            where t.org_id = o.org_id and t.status = s.status and t.status <> 'completed' and t.created_at < $1
        ) i
        where exists (select from holdfast.%1$I p where p.instance_id = i.id)
        limit 1
    $query$, child) into holder using next;
    if holder is null then
        execute format($query$
            select d.instance_id from holdfast.dead_letters d
            where d.resolved_at is null and exists (select from holdfast.%1$I p where p.instance_id = d.instance_id)
            limit 1
        $query$, child) into holder;
    end if;
    if holder is null and parent = 'effects' then
        -- Written like the conditions of the two indexes that hold what is outstanding, so that one of them answers.
        execute format($query$
            (select p.instance_id from holdfast.%1$I p where p.status in ('pending', 'failed') limit 1)
            union all
            (select p.instance_id from holdfast.%1$I p where p.status = 'processing' limit 1)
            limit 1
        $query$, child) into holder;
    end if;
    return holder;
end
$$;

-- The months of a table that ended before a moment, and who still needs each; null: nobody.
create function holdfast.old_partitions(parent text, older timestamptz)
returns table (child text, next timestamptz, holder uuid)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    if parent not in ('steps', 'events', 'effects') then
        raise exception 'There are no monthly partitions of "%"', parent using errcode = 'HF422';
    end if;
    return query
    select m.child, m.next, holdfast.partition_holder(old_partitions.parent, m.child, m.next)
    from holdfast.monthly_partitions(old_partitions.parent) m
    where m.next <= least(older, holdfast.clock());
end
$$;

-- Detaches and drops one month that nobody needs. It looks again: what was free stays free, because an instance that is
-- over never comes back and new rows go to the present month. False: it is held, or gone already.
create function holdfast.drop_partition(parent text, child text, older timestamptz) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
begin
    if not exists (
        select from holdfast.old_partitions(parent, older) o where o.child = drop_partition.child and o.holder is null
    ) then
        return false;
    end if;
    execute format('alter table holdfast.%I detach partition holdfast.%I', parent, child);
    execute format('drop table holdfast.%I', child);
    return true;
end
$$;

-- The smallest id an instance started at this moment can have.
create function holdfast.first_id(moment timestamptz) returns uuid
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return (lpad(to_hex(greatest(floor(extract(epoch from moment) * 1000), 0)::bigint), 12, '0') || repeat('0', 20))::uuid;
end
$$;

-- Of these instances and their sub-flows, all that are over since before a moment: a family goes together or not at
-- all. Whoever has a signal, work, an open dead letter or an effect under way keeps its whole family.
create function holdfast.finished_families(roots uuid[], older timestamptz) returns uuid[]
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
begin
    return array(
        with recursive family as (
            select r.id as root, i.id, i.completed_at
            from unnest(roots) r(id)
            join holdfast.instances i on i.id = any(array[r.id])
            where i.parent_id is null
            union all
            select f.root, c.id, c.completed_at
            from family f
            join holdfast.instances c on c.parent_id = any(array[f.id])
        ), over as (
            select f.root
            from family f
            group by f.root
            having bool_and(
                coalesce(f.completed_at < older, false)
                and not exists (select from holdfast.signals s where s.instance_id = f.id)
                and not exists (select from holdfast.work w where w.instance_id = f.id)
                and not exists (select from holdfast.dead_letters d where d.instance_id = f.id and d.resolved_at is null)
                and not exists (
                    select from holdfast.effects e
                    where e.instance_id = f.id and e.status not in ('completed', 'dead_letter')))
        )
        select f.id from over o join family f on f.root = o.root order by f.id
    );
end
$$;

-- Removes instances that ended before a moment with everything that belongs to them; one page of ids per call.
create function holdfast.purge_instances(
    older timestamptz, after uuid, most int, out visited int, out removed int, out last uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    page uuid[];
    doomed uuid[];
    tasks uuid[];
    related text;
begin
    page := array(
        select i.id from holdfast.instances i
        where i.id > coalesce(after, '00000000-0000-0000-0000-000000000000') and i.id < holdfast.first_id(older)
        order by i.id limit most);
    visited := cardinality(page);
    last := page[visited];
    doomed := holdfast.finished_families(page, older);
    removed := cardinality(array(
        select i.id from holdfast.instances i where i.id = any(doomed) order by i.id for update skip locked));
    if removed < cardinality(doomed) then  -- somebody else is at the same page
        removed := 0;
        return;
    end if;
    tasks := array(select t.id from holdfast.tasks t where t.instance_id = any(doomed));
    perform set_config('holdfast.maintenance', 'on', true);
    foreach related in array array['task_roles', 'task_events'] loop
        execute format('delete from holdfast.%I t where t.task_id = any($1)', related) using tasks;
    end loop;
    foreach related in array array[
        'work', 'signals', 'inbox', 'timers', 'key_waits', 'step_receipts', 'outbox_receipts', 'dead_letters', 'tasks',
        'steps', 'events', 'effects'
    ] loop
        execute format('delete from holdfast.%I t where t.instance_id = any($1)', related) using doomed;
    end loop;
    delete from holdfast.instance_attributes a  -- found by what the instances themselves say, so it needs no second index
    using holdfast.instances i
    cross join lateral jsonb_each(case jsonb_typeof(i.attributes) when 'object' then i.attributes end) e
    where i.id = any(doomed) and a.org_id = i.org_id and a.name = e.key and a.value = holdfast.attribute_value(e.value)
        and a.instance_id = i.id and a.bucket = i.bucket;
    delete from holdfast.instances i where i.id = any(doomed);
    perform set_config('holdfast.maintenance', '', true);
end
$$;

-- Removes the receipts of instances that ended before a moment. It walks the receipts themselves, one instance at a
-- step: what was pruned is not met again.
create function holdfast.prune_receipts(
    older timestamptz, after uuid, most int, out visited int, out removed int, out last uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    page uuid[];
    doomed uuid[];
    related text;
    gone int;
begin
    page := array(
        with recursive met as (
            (select r.instance_id from holdfast.step_receipts r
             where r.instance_id > coalesce(after, '00000000-0000-0000-0000-000000000000')
               and r.instance_id < holdfast.first_id(older)
             order by r.instance_id limit 1)
            union all
            select (select r.instance_id from holdfast.step_receipts r
                where r.instance_id > m.instance_id and r.instance_id < holdfast.first_id(older)
                order by r.instance_id limit 1)
            from met m where m.instance_id is not null
        )
        select m.instance_id from met m where m.instance_id is not null limit most);
    visited := cardinality(page);
    last := page[visited];
    doomed := holdfast.finished_families(page, older);
    removed := 0;
    foreach related in array array['step_receipts', 'outbox_receipts'] loop
        execute format('delete from holdfast.%I t where t.instance_id = any($1)', related) using doomed;
        get diagnostics gone = row_count;
        removed := removed + gone;
    end loop;
end
$$;

create function holdfast.prune_dead_letters(older timestamptz, most int) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    removed int;
begin
    delete from holdfast.dead_letters d using (
        select t.id, t.bucket from holdfast.dead_letters t
        where t.resolved_at < older order by t.resolved_at limit most for update skip locked
    ) old
    where d.id = old.id and d.bucket = old.bucket;
    get diagnostics removed = row_count;
    return removed;
end
$$;

-- Removes sums of hours that are long over; those of all times stay.
create function holdfast.prune_statistics(older timestamptz, page int) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    removed int;
begin
    delete from holdfast.statistics s using (
        select t.org_id, t.hour, t.flow, t.flow_version, t.node, t.outcome, t.bar from holdfast.statistics t
        where t.hour > '-infinity' and t.hour < older limit page for update skip locked
    ) old
    where (s.org_id, s.hour, s.flow, s.flow_version, s.node, s.outcome, s.bar)
        = (old.org_id, old.hour, old.flow, old.flow_version, old.node, old.outcome, old.bar);
    get diagnostics removed = row_count;
    return removed;
end
$$;

-- Removes events by key that nobody may receive any more, and keys that nothing uses. A key is a lock: whoever is about
-- to use it holds it, and is skipped.
create function holdfast.expire_key_events(most int) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    removed int;
begin
    with gone as (
        delete from holdfast.key_events e using (
            select t.org_id, t.event, t.key, t.id, t.bucket from holdfast.key_events t
            where t.expires_at <= (select holdfast.clock()) order by t.expires_at limit most for update skip locked
        ) old
        where e.org_id = old.org_id and e.event = old.event and e.key = old.key and e.id = old.id and e.bucket = old.bucket
        returning e.org_id, e.event, e.key, e.id, e.bucket
    ), unused as materialized (
        select k.org_id, k.event, k.key, k.bucket
        from (select distinct g.org_id, g.event, g.key, g.bucket from gone g) u
        cross join lateral (
            select t.* from holdfast.event_keys t
            where t.org_id = u.org_id and t.event = u.event and t.key = u.key and t.bucket = u.bucket
            for update skip locked
        ) k
        where not exists (
                select from holdfast.key_events e
                where e.org_id = k.org_id and e.event = k.event and e.key = k.key
                  and e.id not in (select g.id from gone g where g.event = k.event and g.key = k.key))
          and not exists (
                select from holdfast.key_waits w where w.org_id = k.org_id and w.event = k.event and w.key = k.key)
    ), freed as (
        delete from holdfast.event_keys k using unused u
        where k.org_id = u.org_id and k.event = u.event and k.key = u.key and k.bucket = u.bucket
    )
    select count(*) into removed from gone;
    return removed;
end
$$;

-- Where the next line beside the decisions stands in the audit trail: behind all that its version has by now. Lines that
-- need not look for their place begin at 32000.
create function holdfast.next_ordinal(instance uuid, shard smallint, of_version bigint) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (
        select least(greatest(coalesce(max(e.ordinal) filter (where e.ordinal < 32000), 0), 999) + 1, 31000)
        from holdfast.events e
        where e.instance_id = instance and e.bucket = shard and e.version = of_version
    );
end
$$;

-- The date of a line beside the decisions: its moment, and never before the last commit. Where that lies in the future,
-- since the clock was set back, the lines follow each other by the smallest step there is.
create function holdfast.date_beside(
    instance uuid, shard smallint, of_version bigint, last_commit timestamptz, moment timestamptz
) returns timestamptz
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if moment > last_commit then
        return moment;
    end if;
    return (
        select greatest(last_commit, max(e.created_at)) + interval '1 microsecond'
        from holdfast.events e
        where e.instance_id = instance and e.bucket = shard and e.version = of_version
    );
end
$$;

-- Removes events that came before anything waited for them and never were. An instance counts what is kept for it, so it is
-- told by a signal, and its audit trail by that; of one that is over, the trail is told here.
create function holdfast.expire_inbox(most int) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    removed int;
    moment timestamptz := holdfast.clock();
begin
    with gone as (
        delete from holdfast.inbox t using (
            select o.instance_id, o.id, o.bucket from holdfast.inbox o
            where o.expires_at <= moment order by o.expires_at limit most for update skip locked
        ) old
        where t.instance_id = old.instance_id and t.id = old.id and t.bucket = old.bucket
        returning t.*
    ), lost as (
        select g.*, i.version, holdfast.date_beside(i.id, i.bucket, i.version, i.updated_at, moment) as told_at,
            i.status in ('completed', 'failed', 'cancelled', 'aborted') as is_over,
            jsonb_build_object('event', g.event, 'id', g.id, 'received_at', g.created_at) as detail
        from gone g
        join holdfast.instances i on i.id = g.instance_id and i.bucket = g.bucket
    ), told as (
        insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, actor, detail)
        select l.instance_id, l.bucket, l.told_at, l.version,
            holdfast.next_ordinal(l.instance_id, l.bucket, l.version) - 1
                + row_number() over (partition by l.instance_id order by l.created_at, l.id),
            l.org_id, 'event_expired', 'system', l.detail
        from lost l
        where l.is_over
    ), sent as (
        insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
        select l.instance_id, holdfast.new_id(l.bucket), l.bucket, l.org_id, 'lapsed',
            jsonb_build_object('expired', jsonb_agg(l.detail order by l.created_at, l.id)), moment
        from lost l
        where not l.is_over
        group by l.instance_id, l.bucket, l.org_id
    )
    select count(*) into removed from gone;
    if removed > 0 then
        perform holdfast.wake_workers();
    end if;
    return removed;
end
$$;

-- What an unfinished instance waits for that will not come: work that is in no queue, a timer that is not set, a sub-flow
-- or an effect that is over without having said so. Empty when something is queued for it, or only people can move it.
create function holdfast.missing_movers(instance uuid, shard smallint, version bigint, state jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from holdfast.signals s where s.instance_id = instance and s.bucket = shard) then
        return '[]';
    end if;
    if version = 0 then
        return '[{"missing": "start"}]';
    end if;
    return coalesce((
        with tokens as (
            select t.key as path, t.value as token, coalesce(t.value ->> 'phase', 'working') as phase
            from jsonb_each(coalesce(state -> 'tokens', '{}') || coalesce(state -> 'ghosts', '{}')) t
        ), waits as (
            select t.path, t.token ->> 'node' as node, w.value as wait, w.value ->> 'kind' as kind,
                encode(decode(w.value ->> 'ref', 'base64'), 'hex')::uuid as ref
            from tokens t
            cross join lateral jsonb_array_elements(coalesce(t.token -> 'waits', '[]')) w
            union all
            select '', null, state -> 'expires', state -> 'expires' ->> 'kind', null where state ? 'expires'
        )
        select jsonb_agg(m order by m ->> 'path')
        from (
            select jsonb_build_object('path', t.path, 'node', t.token ->> 'node', 'missing', 'work')
            from tokens t
            where t.phase in ('working', 'cancelling', 'expiring')
                and not coalesce(t.token -> 'waits', '[]') @> '[{"kind": "child"}]' and not exists (
                select from holdfast.work w where w.instance_id = instance and w.path = t.path and w.bucket = shard)
            union all
            select jsonb_build_object('path', w.path, 'node', w.node, 'missing', 'timer', 'wait', w.wait ->> 'id')
            from waits w
            where w.wait ? 'due' and not exists (
                select from holdfast.timers r
                where r.instance_id = instance and r.bucket = shard and r.wait = w.wait ->> 'id')
            union all
            select jsonb_build_object('path', w.path, 'node', w.node, 'missing', 'child', 'ref', w.ref)
            from waits w
            where w.kind = 'child' and not exists (
                select from holdfast.instances c
                where c.id = w.ref and c.bucket = get_byte(uuid_send(w.ref), 15) and c.completed_at is null)
            union all
            select jsonb_build_object('path', w.path, 'node', w.node, 'missing', 'effect', 'ref', w.ref)
            from waits w
            where w.kind = 'receipt' and not exists (
                select from holdfast.effects e
                where e.instance_id = instance and e.id = w.ref and e.bucket = shard
                  and e.status not in ('completed', 'dead_letter'))
            union all
            select '{"missing": "tokens"}'::jsonb where not exists (select from tokens)
        ) x (m)
    ), '[]');
end
$$;

grant select, insert, update on holdfast.upkeep to holdfast_worker, holdfast_maintenance;
grant select, insert, delete on holdfast.upkeep_runs to holdfast_worker, holdfast_maintenance;
grant usage on schema holdfast to holdfast_maintenance;
grant execute on function holdfast.clock to holdfast_maintenance;

revoke all on function
    holdfast.monthly_partitions, holdfast.move_default_month, holdfast.partition_holder, holdfast.old_partitions,
    holdfast.drop_partition, holdfast.first_id, holdfast.finished_families, holdfast.purge_instances,
    holdfast.prune_receipts, holdfast.prune_dead_letters, holdfast.prune_statistics, holdfast.expire_key_events, holdfast.expire_inbox,
    holdfast.next_ordinal, holdfast.date_beside, holdfast.missing_movers
    from public;
grant execute on function
    holdfast.move_default_month, holdfast.expire_key_events, holdfast.expire_inbox, holdfast.next_ordinal,
    holdfast.date_beside, holdfast.missing_movers
    to holdfast_worker;
grant execute on function
    holdfast.move_default_month, holdfast.ensure_partitions, holdfast.expire_key_events, holdfast.expire_inbox,
    holdfast.old_partitions, holdfast.drop_partition, holdfast.purge_instances, holdfast.prune_receipts,
    holdfast.prune_dead_letters, holdfast.prune_statistics
    to holdfast_maintenance;

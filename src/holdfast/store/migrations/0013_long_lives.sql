-- Long lives: instances that rest for years give up their old months, and receipts of what they have passed.
-- An instance at rest is carried: its open steps get rows in the present month, beside a checkpoint that replay begins at.
-- `carried_at` is the moment of the newest checkpoint; the months that ended before it are not needed any more.

alter table holdfast.instances add column carried_at timestamptz;
grant update (carried_at) on holdfast.instances to holdfast_worker;

-- Where a pass over instances goes on that is not in the order of their ids, and what the last whole pass left.
alter table holdfast.upkeep add column mark jsonb;

-- A step at rest may go on as a row of a later month.
create or replace function holdfast.check_step_move() returns trigger
language plpgsql as $$
begin
    if old.status <> new.status and strpos(
        ' pending>running pending>waiting_decision pending>waiting pending>completed pending>confirmed '
        'pending>rejected pending>failed pending>paused pending>skipped pending>cancelled '
        'running>waiting_decision running>waiting running>completed running>confirmed running>rejected '
        'running>failed running>paused running>skipped running>cancelled running>compensation '
        'running>rolled_back waiting_decision>completed '
        'waiting_decision>confirmed waiting_decision>rejected waiting_decision>failed '
        'waiting_decision>paused waiting_decision>skipped waiting_decision>cancelled waiting_decision>superseded '
        'waiting>completed waiting>confirmed waiting>rejected waiting>failed waiting>paused waiting>skipped '
        'waiting>cancelled waiting>superseded completed>compensation completed>rolled_back confirmed>compensation '
        'confirmed>rolled_back failed>compensation failed>rolled_back failed>superseded paused>skipped '
        'paused>superseded compensation>failed compensation>rolled_back ',
        ' ' || old.status || '>' || new.status || ' ') = 0
    then
        raise exception 'Step % may not go from % to %', old.id, old.status, new.status using errcode = 'HF002';
    end if;
    return null;
end
$$;

-- A page of unfinished instances, organisation by organisation, and which of them still need rows from before a moment.
-- Every one does that began before it and has not been carried since: no month needs to be looked into.
create function holdfast.find_long_lived(
    older timestamptz, after_org text, after_status text, after_id uuid, most int,
    out visited int, out due uuid[], out last_org text, out last_status text, out last_id uuid)
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    words constant text[] := array['dlq', 'rolling_back', 'running', 'suspended'];
    word text;
    page record;
begin
    visited := 0;
    due := '{}';
    last_org := coalesce(after_org, (
        select i.org_id from holdfast.instances i where i.status <> 'completed' order by i.org_id limit 1));
    last_status := coalesce(after_status, words[1]);
    last_id := coalesce(after_id, '00000000-0000-0000-0000-000000000000');
    while last_org is not null loop
        foreach word in array words[array_position(words, last_status):] loop
            select count(*) as met, array_agg(p.id order by p.id) filter (where p.is_due) as due,
                (array_agg(p.id order by p.id desc))[1] as last
            into page
            from (
                select i.id, coalesce(i.carried_at, i.created_at) < older as is_due
                from holdfast.instances i
                where i.org_id = find_long_lived.last_org and i.status = word and i.status <> 'completed'
                    and i.id > case when word = find_long_lived.last_status then find_long_lived.last_id
                        else '00000000-0000-0000-0000-000000000000' end
                order by i.id limit most - visited
            ) p;
            visited := visited + page.met;
            due := due || coalesce(page.due, '{}');
            if visited >= most then
                last_status := word;
                last_id := page.last;
                return;
            end if;
        end loop;
        last_status := words[1];
        last_id := '00000000-0000-0000-0000-000000000000';
        last_org := (
            select i.org_id from holdfast.instances i
            where i.status <> 'completed' and i.org_id > find_long_lived.last_org order by i.org_id limit 1);
    end loop;
    last_status := null;
    last_id := null;
end
$$;

-- Removes receipts of what instances passed before their newest checkpoint: a token that moved on never comes back to a
-- hop, and what it stands on keeps its receipt. Of signals and effects those go that are older than the window in which
-- they must be recognised; none without a window.
create function holdfast.prune_passed_receipts(ids uuid[], seen_since timestamptz, most int) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    removed int;
    more int;
begin
    delete from holdfast.step_receipts r using (
        select t.instance_id, t.token, t.kind, t.run, t.bucket
        from holdfast.instances i
        cross join lateral (
            select array(select o.key || '@' || (o.value ->> 'hop') from jsonb_each(i.state -> 'tokens') o) as tokens
            offset 0
        ) open
        cross join lateral (
            select s.* from holdfast.step_receipts s
            where s.instance_id = i.id and s.bucket = i.bucket and s.created_at < i.carried_at
                and s.token <> all (open.tokens)
        ) t
        where i.id = any(ids) and i.completed_at is null
        limit most
    ) old
    where (r.instance_id, r.token, r.kind, r.run, r.bucket) = (old.instance_id, old.token, old.kind, old.run, old.bucket);
    get diagnostics removed = row_count;
    if removed < most and seen_since is not null then
        delete from holdfast.outbox_receipts r using (
            select t.instance_id, t.source, t.key, t.bucket
            from holdfast.instances i
            cross join lateral (
                select s.* from holdfast.outbox_receipts s
                where s.instance_id = i.id and s.bucket = i.bucket and s.created_at < least(i.carried_at, seen_since)
            ) t
            where i.id = any(ids) and i.completed_at is null
            limit most - removed
        ) old
        where (r.instance_id, r.source, r.key, r.bucket) = (old.instance_id, old.source, old.key, old.bucket);
        get diagnostics more = row_count;
        removed := removed + more;
    end if;
    return removed;
end
$$;

-- An instance that still needs the rows of this partition: unfinished and not carried since, or with an open dead letter,
-- or with an effect or a fact that was not delivered. Notices go by age alone. It walks the unfinished ones organisation by
-- organisation: finished history costs nothing.
create or replace function holdfast.partition_holder(parent text, child text, next timestamptz) returns uuid
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
declare
    holder uuid;
begin
    if parent = 'notices' then
        return null;
    end if;
    if parent in ('acks', 'ack_consumers') then
        -- A delivery lies in the month of its fact, so one look answers for both.
        if to_regclass('holdfast.ack_consumers' || right(child, 7)) is not null then
            execute format('select p.instance_id from holdfast.%I p where p.closed_at is null limit 1',
                'ack_consumers' || right(child, 7)) into holder;
        end if;
    else
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
                    and coalesce(t.carried_at < $1, true)
            ) i
            where exists (select from holdfast.%1$I p where p.instance_id = i.id)
            limit 1
        $query$, child) into holder using next;
    end if;
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

create or replace function holdfast.old_partitions(parent text, older timestamptz)
returns table (child text, next timestamptz, holder uuid)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    if parent not in ('steps', 'events', 'effects', 'acks', 'ack_consumers', 'notices') then
        raise exception 'There are no monthly partitions of "%"', parent using errcode = 'HF422';
    end if;
    return query
    select m.child, m.next, holdfast.partition_holder(old_partitions.parent, m.child, m.next)
    from holdfast.monthly_partitions(old_partitions.parent) m
    where m.next <= least(older, holdfast.clock());
end
$$;

-- Of these instances and their sub-flows, all that are over since before a moment: a family goes together or not at
-- all. Whoever has a signal, work, an open dead letter, an effect under way or a fact still to be delivered keeps its whole
-- family.
create or replace function holdfast.finished_families(roots uuid[], older timestamptz) returns uuid[]
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
                    select from holdfast.ack_consumers a where a.instance_id = f.id and a.closed_at is null)
                and not exists (
                    select from holdfast.effects e
                    where e.instance_id = f.id and e.status not in ('completed', 'dead_letter')))
        )
        select f.id from over o join family f on f.root = o.root order by f.id
    );
end
$$;

create or replace function holdfast.purge_instances(
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
    delete from holdfast.ack_consumers t using holdfast.acks a  -- which alone are found by instance
    where a.instance_id = any(doomed) and t.created_at = a.created_at and t.ack_id = a.id and t.instance_id = a.instance_id
        and t.bucket = a.bucket;
    foreach related in array array[
        'work', 'signals', 'inbox', 'timers', 'key_waits', 'step_receipts', 'outbox_receipts', 'dead_letters', 'tasks',
        'stale_checks', 'activities', 'acks', 'steps', 'events', 'effects'
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

revoke all on function holdfast.find_long_lived, holdfast.prune_passed_receipts from public;
grant execute on function holdfast.find_long_lived to holdfast_worker;
grant execute on function holdfast.prune_passed_receipts to holdfast_maintenance;

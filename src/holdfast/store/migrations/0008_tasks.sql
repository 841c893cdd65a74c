-- Human work: a row per task, its append-only history, and what is open by role.
-- An inbox reads one index from its beginning and stops: rank is 100 - priority and a task without a due time is due at
-- infinity, so that everything is ascending. Tasks that are over are in none of the inbox's indexes.

create table holdfast.tasks (
    id uuid not null,
    bucket smallint not null,
    org_id text not null,
    instance_id uuid not null,
    step_id uuid not null,
    step_created_at timestamptz not null,
    flow text not null,
    node text not null,
    token text not null,
    status text not null,
    roles jsonb not null,
    assignee text check (octet_length(assignee) between 1 and 2000),
    rank smallint not null check (rank between 0 and 100),
    due_at timestamptz not null,
    form jsonb,
    payload jsonb,
    decision text,
    comment text,
    data jsonb,
    decided_by text,
    reason text,
    version int not null,
    created_by text,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    closed_at timestamptz,
    primary key (id, bucket),
    constraint tasks_status check (
        case when closed_at is null then status in ('open', 'assigned', 'claimed')
            else status in ('completed', 'cancelled', 'expired') end
        and (status <> 'open' or assignee is null)
        and (status not in ('assigned', 'claimed') or assignee is not null)
        and (status = 'completed') = (decision is not null))
);
-- A condition that always holds, and that only a query by instance implies: to all others the index is invisible.
create index tasks_by_instance on holdfast.tasks (instance_id, id) where instance_id is not null;
create index tasks_open on holdfast.tasks (org_id, rank, due_at, id) where closed_at is null;
create index tasks_free on holdfast.tasks (org_id, rank, due_at, id)
    where closed_at is null and assignee is null and roles = '[]';
-- Open, said in other words: to a query that says it like this `tasks_open` is invisible, which would look as good to the
-- planner wherever few people have all the tasks.
create index tasks_assigned on holdfast.tasks (org_id, assignee, rank, due_at, id)
    where num_nulls(closed_at) = 1 and assignee is not null;
create index tasks_over on holdfast.tasks (org_id, status, id) where closed_at is not null;

-- One row per role of an open task; gone when the task is over.
create table holdfast.task_roles (
    task_id uuid not null,
    role text not null check (octet_length(role) between 1 and 200),
    bucket smallint not null,
    org_id text not null,
    rank smallint not null,
    due_at timestamptz not null,
    primary key (task_id, role, bucket)
);
create index task_roles_inbox on holdfast.task_roles (org_id, role, rank, due_at, task_id) where role is not null;

create table holdfast.task_events (
    task_id uuid not null,
    ordinal int not null,
    bucket smallint not null,
    org_id text not null,
    instance_id uuid not null,
    type text not null check (type in ('created', 'assigned', 'claimed', 'released', 'reassigned', 'delegated',
        'renamed', 'completed', 'cancelled', 'expired')),
    actor text,
    assignee text,
    reason text,
    detail jsonb,
    created_at timestamptz not null,
    primary key (task_id, ordinal, bucket)
);

do $$
declare
    secured text;
begin
    foreach secured in array array['tasks', 'task_roles', 'task_events'] loop
        execute format('alter table holdfast.%I enable row level security', secured);
        execute format('alter table holdfast.%I force row level security', secured);
        execute format('create policy worker on holdfast.%I to holdfast_worker'
            ' using (true) with check (true)', secured);
        execute format('create policy tenant on holdfast.%I to holdfast_tenant'
            ' using (org_id = (select holdfast.visible_org()))', secured);
        execute format('grant select, insert on holdfast.%I to holdfast_worker', secured);
        execute format('grant select on holdfast.%I to holdfast_tenant', secured);
        perform holdfast.forbid_truncate(secured);
    end loop;
end
$$;
grant update (
    node, status, assignee, decision, comment, data, decided_by, reason, version, updated_at, closed_at
) on holdfast.tasks to holdfast_worker;
grant delete on holdfast.task_roles to holdfast_worker;

-- What nobody may do, whoever asks.

create trigger tasks_identity
after update of id, bucket, org_id, instance_id, step_id, step_created_at, flow, token, roles, rank, due_at, form, payload,
    created_by, created_at
on holdfast.tasks for each row when (
    (old.id, old.bucket, old.org_id, old.instance_id, old.step_id, old.step_created_at, old.flow, old.token, old.roles,
        old.rank, old.due_at, old.form, old.payload, old.created_by, old.created_at)
    is distinct from
    (new.id, new.bucket, new.org_id, new.instance_id, new.step_id, new.step_created_at, new.flow, new.token, new.roles,
        new.rank, new.due_at, new.form, new.payload, new.created_by, new.created_at)
) execute function holdfast.refuse_change('What a task was opened with never changes');

create trigger tasks_node
after update of node on holdfast.tasks for each row when (
    old.node is distinct from new.node and current_setting('holdfast.migrating', true) is distinct from 'on'
) execute function holdfast.refuse_change('A task keeps the name of its step until its instance is migrated');

create trigger tasks_over
after update on holdfast.tasks for each row when (old.closed_at is not null or new.version <> old.version + 1)
execute function holdfast.refuse_change('A task that is over never changes, and its version rises with every change');

create trigger tasks_kept
after delete on holdfast.tasks for each row when (current_setting('holdfast.maintenance', true) is distinct from 'on')
execute function holdfast.refuse_change('Tasks are evidence: no row is deleted');

create trigger task_events_unchanged
after update on holdfast.task_events for each row
execute function holdfast.refuse_change('The history of a task is append-only');

create trigger task_events_kept
after delete on holdfast.task_events for each row
when (current_setting('holdfast.maintenance', true) is distinct from 'on')
execute function holdfast.refuse_change('The history of a task is append-only');

-- A decision in the caller's transaction.

create function holdfast.refuse_closed_task(task uuid, status text, decided_by text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if status in ('completed', 'cancelled', 'expired') then
        raise exception 'Task % is already %', task, status || coalesce(' by ' || decided_by, '') using errcode = 'HF409';
    end if;
end
$$;

create function holdfast.refuse_held_task(task uuid, assignee text, actor text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if assignee <> actor then
        raise exception 'Task % is in the hands of "%"', task, assignee
            using errcode = 'HF409', hint = 'Only they may decide it, unless it is assigned to somebody else.';
    end if;
end
$$;

-- Sends a decision on a task to its instance. Whether it still stands is seen when a worker applies it.
create function holdfast.decide(
    task uuid,
    decision text,
    comment text default null,
    data jsonb default null,
    by text default null,
    id uuid default null,
    org text default null,
    capabilities text[] default null,
    if_version bigint default null,
    roles text[] default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    shard smallint := get_byte(uuid_send(task), 15);
    signal_id uuid := coalesce(id, holdfast.new_id(shard));
    actor jsonb := holdfast.actor_with(by, capabilities, roles);
    content bytea := holdfast.signal_digest(
        decision, jsonb_build_object('data', data, 'comment', comment), task::text);
    found_task record;
    earlier bytea;
    moment timestamptz := holdfast.clock();
begin
    perform holdfast.check_name('decision', coalesce(decision, ''), 200);
    perform holdfast.check_name('comment', comment, 2000);
    perform holdfast.check_payload('data', data);
    select t.instance_id, t.status, t.assignee, t.decided_by into found_task
    from holdfast.tasks t
    where t.id = decide.task and t.bucket = shard and t.org_id = tenant;
    if found_task.instance_id is null then
        raise exception 'There is no task %', task
            using errcode = 'HF404', hint = 'Check the id and the organisation it belongs to.';
    end if;

    insert into holdfast.outbox_receipts (instance_id, source, key, bucket, org_id, hash, created_at)
    values (found_task.instance_id, 'signal', signal_id::text, shard, tenant, content, moment)
    on conflict do nothing;
    if not found then
        select r.hash into earlier
        from holdfast.outbox_receipts r
        where r.instance_id = found_task.instance_id and r.source = 'signal' and r.key = signal_id::text
          and r.bucket = shard;
        if earlier is distinct from content then
            raise exception 'Signal % was already sent with other content', signal_id
                using errcode = 'HF409', hint = 'Use a new id for a new decision.';
        end if;
        return signal_id;
    end if;

    perform holdfast.refuse_closed_task(task, found_task.status, found_task.decided_by);
    perform holdfast.refuse_held_task(task, found_task.assignee, actor ->> 'id');
    perform holdfast.refuse_version(found_task.instance_id, tenant, if_version);
    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
    values (
        found_task.instance_id, signal_id, shard, tenant, 'decided',
        jsonb_build_object(
            'task', task, 'decision', decision, 'payload', data, 'comment', comment, 'actor', actor,
            'if_version', if_version),
        moment
    );
    perform holdfast.wake_workers();
    return signal_id;
end
$$;

revoke all on function holdfast.refuse_closed_task, holdfast.refuse_held_task, holdfast.decide from public;
grant execute on function holdfast.decide to holdfast_worker, holdfast_tenant;

-- Machines: facts for consumers, their deliveries and acknowledgements, activities, notices.
-- A fact is a row of `acks`: a transition, a hook, or the completion of a state's gates. Each consumer that takes it has a
-- row of `ack_consumers`, alive or not. Only the first open fact of a consumer and an instance has a due time, so what is
-- down or behind costs no writes and no place in the index of what is due.

-- Who takes facts. The bucket follows from the name, which makes the name unique.
create table holdfast.consumers (
    id uuid not null,
    bucket smallint not null,
    org_id text not null,
    environment text not null check (octet_length(environment) between 1 and 200),
    name text not null check (octet_length(name) between 1 and 200),
    way text not null check (way in ('here', 'push', 'pull')),
    definitions text[],  -- this and the next three: what it takes; null: all
    states text[],
    events text[],
    hooks text[],
    takes_transitions boolean not null,
    takes_hooks boolean not null,
    critical boolean not null,
    ttl real not null check (ttl > 0),  -- seconds without a beat before it counts as down
    max_attempts int not null check (max_attempts > 0),
    in_flight int not null check (in_flight > 0),
    target jsonb,  -- push: where to, signed with what
    owner text,  -- the subject that registered it
    since timestamptz not null,  -- facts from then on are its own
    filled_to jsonb,  -- past facts are given to it up to here, and none is due meanwhile; null: all are
    swept_to jsonb,  -- facts that became its own meanwhile are made due, or those of a removed one ended, up to here
    registered_at timestamptz not null,
    updated_at timestamptz not null,
    removed_at timestamptz,
    removed_by text,
    primary key (id, bucket),
    constraint consumers_name unique (org_id, environment, name, bucket)
) with (fillfactor = 80);

-- Apart from the consumer, because nothing else changes as often.
create table holdfast.consumer_beats (
    consumer_id uuid not null,
    bucket smallint not null,
    org_id text not null,
    beat_at timestamptz not null,
    reachable_at timestamptz,  -- push: not probed before then; null: it was reached last
    down_since timestamptz,
    primary key (consumer_id, bucket)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- Facts. `seq` is the instance's revision: facts of one revision go out together, those of the next one after them.
create table holdfast.acks (
    instance_id uuid not null,
    bucket smallint not null,
    created_at timestamptz not null,
    id uuid not null,
    org_id text not null,
    environment text not null,
    definition text not null,
    external_ref text not null,
    kind text not null check (kind in ('transition', 'hook', 'complete')),
    type text check (type in ('gate', 'effect')),  -- of a hook
    mode text check (mode in ('all', 'any')),
    state text not null,
    event text,
    code text,  -- of a hook
    step_id uuid not null,
    seq bigint not null,
    ordinal smallint not null,
    needs_ack boolean not null,
    starts_at timestamptz,
    ends_at timestamptz,
    body jsonb not null,
    primary key (instance_id, created_at, id, bucket)
) partition by range (created_at);
-- For consumers that begin in the past: facts of an environment in the order of their commits.
create index acks_in_order on holdfast.acks (org_id, environment, created_at, instance_id, seq, ordinal)
    where environment is not null;  -- so that nobody else's plan can walk it

create table holdfast.ack_consumers (
    instance_id uuid not null,
    bucket smallint not null,
    created_at timestamptz not null,  -- of the fact
    ack_id uuid not null,
    consumer_id uuid not null,
    org_id text not null,
    seq bigint not null,
    ordinal smallint not null,
    starts_at timestamptz,
    ends_at timestamptz,
    most int not null,  -- attempts before it counts as failed; a resume gives more
    attempts int not null default 0,
    status text not null default 'pending'
        check (status in ('pending', 'delivered', 'processed', 'failed', 'expired', 'abandoned')),
    next_due timestamptz,
    delivered_at timestamptz,
    settled_at timestamptz,  -- its consumer's own transaction has processed it
    closed_at timestamptz,
    verdict text check (verdict in ('success', 'failure')),  -- of a gate
    message text,
    primary key (ack_id, created_at, consumer_id, instance_id, bucket)  -- the fact first: see the index of what is open
) partition by range (created_at);
create index ack_consumers_due on holdfast.ack_consumers (consumer_id, next_due) where next_due is not null;
-- The only one by instance, so that no plan can choose to read all that a machine was ever told of instead: an index of few
-- rows that once were many looks dear to the planner. All deliveries of an instance are found by its facts.
create index ack_consumers_open on holdfast.ack_consumers (instance_id, consumer_id, seq, ordinal) where closed_at is null;
-- How far behind a consumer is, and since when. Its predicate is for those who write it alike: for a commit, which knows
-- instance and consumer, this index would be the whole backlog of the consumer.
create index ack_consumers_lag on holdfast.ack_consumers (consumer_id, created_at) where num_nulls(closed_at) = 1;

-- What applications tell of their work in a state. It takes no part in what a machine does.
create table holdfast.activities (
    instance_id uuid not null,
    bucket smallint not null,
    id uuid not null,
    org_id text not null,
    step_id uuid,  -- the entry it belongs to; null: none
    step_created_at timestamptz,
    state text,
    name text not null check (octet_length(name) between 1 and 200),
    actor text not null check (octet_length(actor) between 1 and 200),
    status text not null check (octet_length(status) between 1 and 200),
    data jsonb,
    frozen boolean not null default false,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (instance_id, id, bucket),
    constraint activities_name unique nulls not distinct (instance_id, step_id, name, actor, bucket)
);

-- What the engine has to say to operators: retries, suspensions, what stands still.
create table holdfast.notices (
    id uuid not null,
    bucket smallint not null,
    created_at timestamptz not null,
    org_id text not null,
    code text not null check (octet_length(code) between 1 and 100),
    kind text not null check (kind in ('info', 'warn', 'overdue', 'error')),
    message text not null,
    instance_id uuid,
    consumer text,
    detail jsonb not null default '{}',
    primary key (created_at, id, bucket)  -- the date first: only the next index serves a page
) partition by range (created_at);
create index notices_in_order on holdfast.notices (org_id, id);
create index notices_by_instance on holdfast.notices (instance_id, id) where instance_id is not null;

-- When to look whether an instance stands still. One row for its whole life: a transition writes none.
create table holdfast.stale_checks (
    instance_id uuid not null,
    bucket smallint not null,
    org_id text not null,
    after real not null,  -- seconds of rest that are told first
    told int not null default 0,  -- how often this rest was told of
    step_id uuid,  -- the rest that was told of
    due_at timestamptz not null,
    primary key (instance_id, bucket)
) with (fillfactor = 70);
create index stale_checks_due on holdfast.stale_checks (due_at);

-- A trigger's answer stands with its receipt, so that a repeat is answered alike.
alter table holdfast.outbox_receipts add column answer jsonb;

-- The newest effective version of a blueprint: policies make new versions, so one may lie behind any number of them.
create index definitions_by_blueprint on holdfast.definitions (org_id, name, ((compiled #>> '{config,blueprint}')::int), version)
    where kind = 'machine' and status = 'published';

-- Months.

create or replace function holdfast.wanted_partitions(months_ahead int)
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
        ('acks', 'fillfactor = 100'),
        ('ack_consumers', 'fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05'),
        ('notices', 'fillfactor = 100'),
        ('events', 'fillfactor = 100')
    ) p (parent, options)
    cross join (
        select n, case when n >= 0 then date_trunc('month', holdfast.clock()) + make_interval(months => n) end
        from generate_series(-1, months_ahead) n
    ) m (ahead, first)
    order by p.parent, m.ahead;
end
$$;

create or replace function holdfast.partition_alarm()
returns table (table_name text, default_rows bigint, months_ahead int)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    foreach table_name in array array['ack_consumers', 'acks', 'effects', 'events', 'notices', 'steps'] loop
        execute format('select count(*) from holdfast.%I', table_name || '_default') into default_rows;
        select count(*) filter (where to_regclass('holdfast.' || w.child) is not null) - 1 into months_ahead
        from holdfast.wanted_partitions(24) w
        where w.parent = table_name and w.first is not null;
        return next;
    end loop;
end
$$;

-- Guards.

create trigger acks_unchanged
after update on holdfast.acks for each row
execute function holdfast.refuse_change('A fact never changes');

create trigger acks_kept
after delete on holdfast.acks for each row when (current_setting('holdfast.maintenance', true) is distinct from 'on')
execute function holdfast.refuse_change('Facts are evidence: no row is deleted or moved');

create trigger ack_consumers_identity
after update of instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal, starts_at, ends_at
on holdfast.ack_consumers for each row when (
    (old.instance_id, old.bucket, old.created_at, old.ack_id, old.consumer_id, old.org_id, old.seq, old.ordinal,
        old.starts_at, old.ends_at)
    is distinct from
    (new.instance_id, new.bucket, new.created_at, new.ack_id, new.consumer_id, new.org_id, new.seq, new.ordinal,
        new.starts_at, new.ends_at)
) execute function holdfast.refuse_change('What a consumer is to be told never changes');

-- Forward only; what failed or is wanted once more may be tried again, and a success beats a failure.
create trigger ack_consumers_status
after update of status on holdfast.ack_consumers for each row when (
    old.status <> new.status and strpos(
        ' pending>delivered pending>processed pending>failed pending>expired pending>abandoned delivered>pending '
        'delivered>processed delivered>failed delivered>expired delivered>abandoned failed>pending failed>processed '
        'failed>abandoned expired>processed expired>pending abandoned>processed abandoned>pending processed>pending ',
        ' ' || old.status || '>' || new.status || ' ') = 0
) execute function holdfast.refuse_change('The status of a delivery only goes forward');

create trigger ack_consumers_kept
after delete on holdfast.ack_consumers
for each row when (current_setting('holdfast.maintenance', true) is distinct from 'on')
execute function holdfast.refuse_change('Deliveries are evidence: no row is deleted or moved');

create trigger ack_consumers_month
after update of created_at on holdfast.ack_consumers
for each row when (old.created_at is distinct from new.created_at)
execute function holdfast.refuse_change('No update moves a delivery to another date');

create trigger consumers_identity
after update of id, bucket, org_id, environment, name, registered_at on holdfast.consumers for each row when (
    (old.id, old.bucket, old.org_id, old.environment, old.name, old.registered_at)
    is distinct from (new.id, new.bucket, new.org_id, new.environment, new.name, new.registered_at)
) execute function holdfast.refuse_change('A consumer keeps its name');

create trigger notices_unchanged
after update on holdfast.notices for each row
execute function holdfast.refuse_change('A notice never changes');

create trigger activities_identity
after update of instance_id, bucket, id, org_id, step_id, step_created_at, state, name, actor, created_at
on holdfast.activities for each row when (
    (old.instance_id, old.bucket, old.id, old.org_id, old.step_id, old.step_created_at, old.state, old.name, old.actor,
        old.created_at)
    is distinct from
    (new.instance_id, new.bucket, new.id, new.org_id, new.step_id, new.step_created_at, new.state, new.name, new.actor,
        new.created_at)
) execute function holdfast.refuse_change('What an activity is about never changes');

create trigger activities_frozen
after update on holdfast.activities for each row when (old.frozen and new.frozen)
execute function holdfast.refuse_change('A frozen activity keeps its status: unfreeze it first');

-- Rows of tenants, privileges, TRUNCATE.

do $$
declare
    secured text;
begin
    foreach secured in array array[
        'consumers', 'consumer_beats', 'acks', 'ack_consumers', 'activities', 'notices', 'stale_checks'
    ] loop
        execute format('alter table holdfast.%I enable row level security', secured);
        execute format('alter table holdfast.%I force row level security', secured);
        execute format('create policy worker on holdfast.%I to holdfast_worker using (true) with check (true)', secured);
        execute format('create policy tenant on holdfast.%I to holdfast_tenant'
            ' using (org_id = (select holdfast.visible_org()))', secured);
        execute format('grant select, insert on holdfast.%I to holdfast_worker', secured);
        execute format('grant select on holdfast.%I to holdfast_tenant', secured);
        perform holdfast.forbid_truncate(secured);
    end loop;
end
$$;
grant update on holdfast.consumer_beats, holdfast.stale_checks to holdfast_worker;
grant update (
    way, definitions, states, events, hooks, takes_transitions, takes_hooks, critical, ttl, max_attempts, in_flight, target,
    owner, since, filled_to, swept_to, updated_at, removed_at, removed_by
) on holdfast.consumers to holdfast_worker;
grant update (
    most, attempts, status, next_due, delivered_at, settled_at, closed_at, verdict, message
) on holdfast.ack_consumers to holdfast_worker;
grant update (status, data, frozen, updated_at) on holdfast.activities to holdfast_worker;
grant delete on holdfast.stale_checks to holdfast_worker;

select holdfast.ensure_partitions();

-- Verbs for SQL and for callers with a transaction of their own. They insert rows, lock no instance and decide nothing.

-- As before, but for machines: their instances begin with the first event of a reference.
create or replace function holdfast.startable(
    flow text, version int, tenant text, out definition_id uuid, out flow_version int
)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    compiler text;
    is_machine boolean;
begin
    select d.id, d.version, d.compiler_version, d.kind = 'machine' and d.compiled ? 'config'
        into definition_id, flow_version, compiler, is_machine
    from holdfast.definitions d
    where d.org_id in (tenant, '_system')
      and d.kind in ('saga', 'steps', 'machine', 'effective')
      and d.name = startable.flow
      and d.status = 'published'
      and (startable.version is null or d.version = startable.version)
    order by d.org_id = '_system', d.version desc
    limit 1;
    if definition_id is null then
        raise exception 'There is no published flow "%"%', flow, coalesce(' in version ' || startable.version, '')
            using errcode = 'HF404', hint = format('Publish it for organisation "%s" first.', tenant);
    end if;
    if is_machine then
        raise exception '"%" is a machine: an instance begins with the first event of its reference', flow
            using errcode = 'HF422', hint = 'Use holdfast.trigger.';
    end if;
    perform holdfast.refuse_stale(flow, flow_version, compiler);
end
$$;

-- Nobody would be told of what happens: then it does not happen.
create function holdfast.require_consumer(tenant text, env text, machine text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (
        select from holdfast.consumers c
        where c.org_id = tenant and c.environment = env and c.removed_at is null and c.takes_transitions
          and (c.definitions is null or machine = any(c.definitions))
    ) then
        raise exception 'No consumer takes transitions of "%" in "%", so nobody would be told', machine, env
            using errcode = 'HF422', hint = 'Register a consumer first.';
    end if;
end
$$;

-- Sends an event to the instance of a reference, which is made if it is not there. What the event meets is decided after
-- the caller's commit; the answer stands with the receipt of its request id (holdfast.trigger_answer).
create function holdfast.trigger(
    environment text,
    definition text,
    external_ref text,
    event text,
    payload jsonb default null,
    request_id text default null,
    by text default null,
    expected int default null,
    version int default null,
    ack_required boolean default true,
    occurred_at timestamptz default null,
    org text default null,
    capabilities text[] default null,
    trace text default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    machine text := environment || '.' || definition;
    wanted int := version;
    newest record;
    own_key text;
    instance uuid;
    shard smallint;
    moment timestamptz := holdfast.clock();
    known text;
    content bytea;
    receipt text := 'request:' || request_id;
    earlier bytea;
begin
    perform holdfast.check_name('actor', by, 2000);
    perform holdfast.check_name('trace', trace, 500);
    perform holdfast.check_name('environment', coalesce(environment, ''), 200);
    perform holdfast.check_name('definition', coalesce(definition, ''), 200);
    perform holdfast.check_name('external reference', coalesce(external_ref, ''), 500);
    perform holdfast.check_name('event', coalesce(event, ''), 200);
    perform holdfast.check_name('request id', request_id, 400);
    perform holdfast.check_payload('payload', payload);
    if expected < 0 then
        raise exception 'The expectation % is no number of an entry', expected using errcode = 'HF422';
    end if;
    if not isfinite(occurred_at) then
        raise exception 'An event does not occur at %', occurred_at using errcode = 'HF422', hint = 'Give its moment.';
    end if;
    if array_position(capabilities, null) is not null then
        raise exception 'A capability is null' using errcode = 'HF422', hint = 'Leave it out.';
    end if;
    select n.* into newest
    from unnest(array[tenant, '_system']) with ordinality o (whose, place)
    cross join lateral (
        select f.id, f.version, f.compiler_version, (f.compiled #>> '{config,blueprint}')::int as blueprint,
            (f.compiled #>> '{config,stale}')::real as stale
        from (
            (select d.* from holdfast.definitions d
                where d.org_id = o.whose and d.kind = 'machine' and d.name = machine and d.status = 'published'
                    and wanted is null
                order by d.version desc limit 1)
            union all
            (select d.* from holdfast.definitions d
                where d.org_id = o.whose and d.kind = 'machine' and d.name = machine and d.status = 'published'
                    and (d.compiled #>> '{config,blueprint}')::int = wanted
                order by d.version desc limit 1)
        ) f
    ) n
    order by o.place
    limit 1;
    if newest.id is null or newest.blueprint is null then
        raise exception 'There is no machine "%"%', machine, coalesce(' with blueprint ' || wanted, '')
            using errcode = 'HF404', hint = format('Import it for organisation "%s" first.', tenant);
    end if;
    perform holdfast.require_consumer(tenant, environment, definition);
    own_key := newest.blueprint || ':' || external_ref;
    instance := holdfast.machine_instance(tenant, machine, external_ref, request_id, own_key, wanted is not null);
    select holdfast.event_name(d.compiled, d.edges, event) into known
    from holdfast.definitions d
    where d.id = coalesce((select i.definition_id from holdfast.instances i where i.id = instance), newest.id);
    if known is null then
        raise exception 'The machine "%" has no event "%"', machine, event using errcode = 'HF422',
            hint = 'Name an event of its blueprint, or give its code.';
    end if;
    content := holdfast.signal_digest(known, payload, expected::text);
    if instance is null then
        perform holdfast.refuse_stale(machine, newest.version, newest.compiler_version);
        instance := holdfast.new_id(holdfast.bucket_of(tenant, own_key));
        insert into holdfast.instances (
            id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data, input, idempotency_key,
            business_key, created_by, trace, created_at, updated_at
        ) values (
            instance, get_byte(uuid_send(instance), 15), tenant, newest.id, machine, newest.version, 'pending', 0, '{}', '{}',
            '{}', own_key, external_ref, by, trace, moment, moment
        ) on conflict do nothing;
        if not found then
            instance := holdfast.machine_instance(tenant, machine, external_ref, request_id, own_key, wanted is not null);
            if instance is null then
                raise exception 'The instance of "%" vanished meanwhile; try again', external_ref using errcode = '40001';
            end if;
        elsif newest.stale is not null then
            insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at)
            values (instance, get_byte(uuid_send(instance), 15), tenant, newest.stale,
                moment + newest.stale * interval '1 second');
        end if;
    end if;
    shard := get_byte(uuid_send(instance), 15);
    select r.hash into earlier
    from holdfast.outbox_receipts r
    where r.instance_id = instance and r.source = 'signal' and r.key = receipt and r.bucket = shard;
    if earlier is not null then
        if earlier <> content then
            raise exception 'Request "%" was already sent to "%" with other content', request_id, external_ref
                using errcode = 'HF409', hint = 'Use a new request id for a new event.';
        end if;
        return instance;
    end if;
    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, trace, ripe_at)
    values (
        instance, holdfast.new_id(shard), shard, tenant, 'triggered',
        jsonb_strip_nulls(jsonb_build_object('event', known, 'expected', expected, 'request', request_id,
            'happened_at', (extract(epoch from occurred_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint))
            || jsonb_build_object('payload', payload, 'needs_ack', coalesce(ack_required, true),
                'actor', holdfast.actor_with(by, capabilities)),
        trace, moment
    );
    perform holdfast.wake_workers();
    return instance;
end
$$;

-- The name of an event that was given by its name or code; null where the machine has none such.
create function holdfast.event_name(compiled jsonb, edges jsonb, event text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when compiled #> '{config,codes}' ? event
            or exists (select from jsonb_array_elements(edges) e where e ->> 'on' = event) then event
        else (select c.key from jsonb_each_text(compiled #> '{config,codes}') c where c.value = event)
    end
$$;

-- The instance a trigger means: the one that knows its request, else the open one, else the newest of the blueprint.
create function holdfast.machine_instance(
    tenant text, machine text, ref text, request text, wanted_key text, only_key boolean) returns uuid
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    found_id uuid;
begin
    select t.id into found_id
    from (
        select i.id, i.completed_at is not null as is_over, i.idempotency_key = wanted_key as is_of_key,
            only_key and exists (
                select from holdfast.definitions d
                where d.id = i.definition_id and d.compiled #>> '{config,blueprint}' = split_part(wanted_key, ':', 1)
            ) as is_of_blueprint,
            request is not null and exists (
                select from holdfast.outbox_receipts r
                where r.instance_id = i.id and r.source = 'signal' and r.key = 'request:' || request
                    and r.bucket = i.bucket
            ) as knows
        from holdfast.instances i
        where i.org_id = tenant and i.business_key = ref and i.flow = machine
    ) t
    where t.knows or t.is_of_key or t.is_of_blueprint or (not t.is_over and not only_key)
    order by t.knows desc, t.is_over, t.is_of_blueprint desc, t.id desc
    limit 1;
    return found_id;
end
$$;

-- The answer to a trigger under its request id; null as long as it has none.
create function holdfast.trigger_answer(
    environment text, definition text, external_ref text, request_id text, org text default null) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    told jsonb;
begin
    select r.answer into told
    from holdfast.instances i
    join holdfast.outbox_receipts r on r.instance_id = i.id and r.source = 'signal' and r.key = 'request:' || request_id
        and r.bucket = i.bucket
    where i.org_id = tenant and i.business_key = external_ref and i.flow = environment || '.' || definition
    order by i.id desc
    limit 1;
    return told;
end
$$;

-- A consumer's answer in its own transaction: what it did and its answer are committed together or not at all. False when
-- it had answered before, so that whoever did the work twice can roll back.
create function holdfast.ack(
    consumer text,
    ack text,
    outcome text default 'processed',
    message text default null,
    environment text default 'default',
    verdict text default null,
    next_event text default null,
    next_payload jsonb default null,
    by text default null,
    org text default null
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    handle bytea;
    instance uuid;
    fact uuid;
    shard smallint;
    micros bigint;
    happened timestamptz;
    taker uuid;
    settled_now int;
    following text;
    moment timestamptz := holdfast.clock();
begin
    if outcome not in ('processed', 'failed') then
        raise exception 'There is no outcome "%" in a transaction of your own', outcome
            using errcode = 'HF422', hint = 'Answer processed or failed.';
    end if;
    if verdict not in ('success', 'failure') then
        raise exception 'There is no verdict "%"', verdict using errcode = 'HF422', hint = 'success or failure.';
    end if;
    perform holdfast.check_name('actor', by, 2000);
    perform holdfast.check_name('message', message, 2000);
    perform holdfast.check_payload('payload', next_payload);
    begin
        handle := decode(translate(ack, '-_', '+/') || '=', 'base64');
    exception when others then
        handle := '';
    end;
    if octet_length(coalesce(handle, '')) <> 44 then
        raise exception 'There is no such acknowledgement' using errcode = 'HF404',
            hint = 'Give back the ack of an event exactly as it was handed out.';
    end if;
    instance := encode(substr(handle, 1, 16), 'hex')::uuid;
    micros := ('x' || encode(substr(handle, 17, 8), 'hex'))::bit(64)::bigint;
    fact := encode(substr(handle, 25, 16), 'hex')::uuid;
    happened := timestamptz '2000-01-01 00:00:00+00' + micros * interval '1 microsecond';
    shard := get_byte(uuid_send(instance), 15);
    select c.id into taker from holdfast.consumers c
    where c.org_id = tenant and c.environment = ack.environment and c.name = ack.consumer;
    if not exists (
        select from holdfast.ack_consumers d
        where d.instance_id = instance and d.created_at = happened and d.ack_id = fact and d.consumer_id = taker
          and d.bucket = shard and d.org_id = tenant
    ) then
        raise exception 'There is no such acknowledgement of consumer "%"', consumer using errcode = 'HF404',
            hint = 'Answer as the consumer that got the event.';
    end if;
    if next_event is not null then
        select holdfast.event_name(d.compiled, d.edges, next_event) into following
        from holdfast.instances i
        join holdfast.definitions d on d.id = i.definition_id
        where i.id = instance and i.bucket = shard;
        if following is null then
            raise exception 'The machine has no event "%"', next_event using errcode = 'HF422',
                hint = 'Name an event of its blueprint, or give its code.';
        end if;
    end if;
    update holdfast.ack_consumers d set settled_at = moment, next_due = null
    where d.instance_id = instance and d.created_at = happened and d.ack_id = fact and d.consumer_id = taker
      and d.bucket = shard and d.status <> 'processed'
      and (d.settled_at is null or (d.status = 'failed' and outcome = 'processed'));
    get diagnostics settled_now = row_count;
    if settled_now = 0 then
        return false;
    end if;
    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
    values (
        instance, holdfast.new_id(shard), shard, tenant, 'acked',
        jsonb_strip_nulls(jsonb_build_object('ack', fact, 'at', micros, 'consumer', taker, 'outcome', outcome,
            'reason', message, 'verdict', verdict, 'actor', holdfast.actor_of(coalesce(by, consumer))))
            || case when following is null then '{}'
                else jsonb_build_object('then', jsonb_build_object('event', following, 'payload', next_payload)) end,
        moment
    );
    perform holdfast.wake_workers();
    return true;
end
$$;

-- The handle of a fact, which holdfast.ack takes apart: instance, microseconds since 2000, fact, and a CRC-32 of these.
create function holdfast.ack_handle(instance uuid, happened timestamptz, fact uuid) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    packed bytea := uuid_send(instance)
        || int8send((extract(epoch from happened - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint)
        || uuid_send(fact);
    sum bigint := 4294967295;
begin
    for n in 0..octet_length(packed) - 1 loop
        sum := sum # get_byte(packed, n);
        for bit in 1..8 loop
            sum := (sum >> 1) # (3988292384 * (sum & 1));
        end loop;
    end loop;
    sum := sum # 4294967295;
    return rtrim(translate(encode(packed || substr(int8send(sum), 5), 'base64'), '+/', '-_'), '=');
end
$$;

-- Takes due facts of a consumer that pulls, by the rule of claim_deliveries.sql: the attempt counts with the commit, and a
-- fact without an answer is due again after that. Each call is a beat. What is out of attempts or past its end is not
-- handed out; its instance is told.
create function holdfast.receive(
    consumer text,
    most int default 50,
    environment text default 'default',
    org text default null,
    pending_resend interval default '40 seconds',
    delivered_resend interval default '4 minutes'
) returns table (ack text, attempt int, max_attempts int, body jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    taker record;
    one record;
    moment timestamptz := holdfast.clock();
begin
    if most is null or most not between 1 and 1000 then
        raise exception 'At most % facts are wanted', most using errcode = 'HF422', hint = 'Give a number from 1 to 1000.';
    end if;
    if least(pending_resend, delivered_resend) <= interval '0' then
        raise exception 'A pause before the next attempt is none' using errcode = 'HF422', hint = 'Give a longer one.';
    end if;
    select c.id, c.bucket, c.way, c.in_flight, c.filled_to is null as is_ready into taker
    from holdfast.consumers c
    where c.org_id = tenant and c.environment = receive.environment and c.name = receive.consumer and c.removed_at is null;
    if taker.id is null then
        raise exception 'There is no consumer "%" in "%"', consumer, environment using errcode = 'HF404',
            hint = 'Register it first.';
    end if;
    if taker.way <> 'pull' then
        raise exception 'The consumer "%" does not pull its facts: its way is %', consumer, taker.way
            using errcode = 'HF422', hint = 'Register it with the way pull.';
    end if;
    update holdfast.consumer_beats b set beat_at = clock_timestamp()
    from (
        select x.consumer_id, x.bucket from holdfast.consumer_beats x
        where x.consumer_id = taker.id and x.bucket = taker.bucket
        for update skip locked
    ) l
    where b.consumer_id = l.consumer_id and b.bucket = l.bucket;
    if not taker.is_ready then
        return;
    end if;
    for one in
        with due as materialized (
            select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id,
                case when t.ends_at <= moment then 'expired' when t.attempts >= t.most then 'exhausted' end as over
            from holdfast.ack_consumers t
            where t.consumer_id = taker.id and t.next_due <= moment
            order by t.next_due limit least(receive.most, taker.in_flight)
            for update skip locked
        ), claimed as (
            update holdfast.ack_consumers t set attempts = t.attempts + case when d.over is null then 1 else 0 end,
                next_due = least(moment + case t.status when 'delivered' then delivered_resend else pending_resend end,
                    case when t.ends_at > moment then t.ends_at end)
            from due d
            where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
                and t.consumer_id = d.consumer_id and t.bucket = d.bucket
            returning t.instance_id, t.bucket, t.created_at, t.ack_id, t.attempts, t.most, t.seq, t.ordinal, d.over
        ), noted as (
            insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
            select holdfast.new_id(r.bucket), r.bucket, moment, tenant, 'ACK_RETRY', 'warn',
                'The fact ' || r.ack_id || ' is sent to "' || consumer || '" again: attempt ' || r.attempts || ' of '
                    || r.most || '.',
                r.instance_id, consumer, jsonb_build_object('ack_guid', r.ack_id, 'attempt', r.attempts, 'most', r.most)
            from claimed r
            where r.attempts > 1 and r.over is null
        )
        select r.instance_id, r.bucket, r.created_at, r.ack_id, r.attempts, r.most, r.over, a.needs_ack, a.body
        from claimed r
        cross join lateral (
            select f.needs_ack, f.body from holdfast.acks f
            where f.instance_id = r.instance_id and f.created_at = r.created_at and f.id = r.ack_id and f.bucket = r.bucket
            limit 1
        ) a
        order by r.created_at, r.seq, r.ordinal
    loop
        if one.over is not null then
            insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
            values (
                one.instance_id, holdfast.new_id(one.bucket), one.bucket, tenant, 'acked',
                jsonb_build_object('ack', one.ack_id, 'consumer', taker.id, 'outcome', one.over, 'at',
                    (extract(epoch from one.created_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint),
                moment
            );
            perform holdfast.wake_workers();
            continue;
        end if;
        ack := holdfast.ack_handle(one.instance_id, one.created_at, one.ack_id);
        attempt := one.attempts;
        max_attempts := one.most;
        body := one.body;
        return next;
        if not one.needs_ack then
            perform holdfast.ack(consumer, ack, environment => environment, org => tenant);
        end if;
    end loop;
end
$$;

revoke all on function
    holdfast.require_consumer, holdfast.machine_instance, holdfast.event_name, holdfast.trigger, holdfast.trigger_answer,
    holdfast.ack, holdfast.ack_handle, holdfast.receive
    from public;
grant execute on function holdfast.clock to holdfast_tenant;
grant execute on function holdfast.trigger, holdfast.trigger_answer, holdfast.ack, holdfast.receive
    to holdfast_worker, holdfast_tenant;

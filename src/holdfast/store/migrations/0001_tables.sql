-- Every table of the kernel, its keys and its indexes.
-- The bucket stands last in every key: leading, it would give each index 256 insertion points.
-- No foreign keys between hot tables: they lock rows outside the written lock order.
-- Lengths are counted in bytes, so that the longest legal key still fits into an index page.

create schema if not exists holdfast;

create table holdfast.schema_version (
    number int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
);

-- The words of a status are a type of its own: PostgreSQL reads the condition of a type once in a session and asks it
-- where the column is written; that of a table it reads anew for every statement and asks for every row. The words most
-- rows have come first: lists of up to eight are compared one by one, a longer one would be hashed for every statement.
create domain holdfast.instance_status as text check (
    value in ('running', 'completed', 'rolling_back', 'failed', 'pending')
    or value in ('suspended', 'dlq', 'cancelled', 'aborted'));
create domain holdfast.step_kind as text check (value in ('forward', 'compensate', 'control'));
create domain holdfast.step_status as text check (
    value in ('completed', 'running', 'rolled_back', 'compensation', 'pending', 'failed')
    or value in ('waiting_decision', 'waiting', 'confirmed', 'rejected', 'paused', 'skipped', 'cancelled', 'superseded'));

create table holdfast.definitions (
    id uuid primary key,
    org_id text not null check (octet_length(org_id) between 1 and 200),
    kind text not null check (kind in ('saga', 'steps', 'machine', 'envelope', 'org_patch', 'effective')),
    name text not null check (octet_length(name) between 1 and 200),
    version int not null check (version > 0),
    entity_type text check (octet_length(entity_type) between 1 and 200),
    status text not null default 'draft' check (status in ('draft', 'published', 'archived')),
    is_default boolean not null default false,
    source jsonb,
    nodes jsonb,
    edges jsonb,
    slots jsonb,
    base_ref jsonb,
    patches jsonb,
    compiled jsonb,
    hash text,
    compiler_version text,
    apps jsonb not null default '{}', -- whose the short names of its handlers are
    shared text[] not null default '{}', -- names of handlers that are nobody's: whoever offers them runs them
    created_by text,
    created_at timestamptz not null,
    published_at timestamptz,
    unique (org_id, kind, name, version),
    constraint definitions_executable check (
        kind not in ('saga', 'steps', 'machine', 'effective') or status = 'draft'
        or (compiled is not null and hash <> '' and compiler_version <> '' and nodes is not null and edges is not null
            and hash is not null and compiler_version is not null)
    ),
    constraint definitions_envelope check (
        kind <> 'envelope'
        or (is_default and nodes is not null and edges is not null and slots is not null and patches is null)
    ),
    constraint definitions_org_patch check (
        kind <> 'org_patch'
        or (not is_default and patches is not null and base_ref is not null and nodes is null and edges is null)
    ),
    constraint definitions_entity check (
        kind not in ('envelope', 'org_patch', 'effective') or entity_type is not null
    ),
    constraint definitions_published check ((published_at is null) = (status = 'draft'))
);
create index definitions_by_shared on holdfast.definitions using gin (shared) where status = 'published';
create index definitions_by_entity on holdfast.definitions (org_id, entity_type, status) where entity_type is not null;

-- The projection and the runtime snapshot. `data` is apart from `state` because it changes less often. What a commit changes
-- stands last: the log holds what lies between the first and the last byte that differ, and nothing before or behind them.
create table holdfast.instances (
    id uuid not null,
    bucket smallint not null,
    flow_version int not null,
    definition_id uuid not null,
    created_at timestamptz not null,
    entity_version bigint not null default 0,
    org_id text not null,
    flow text not null,
    input jsonb not null,
    idempotency_key text,
    business_key text,
    entity_type text,
    entity_id text,
    attributes jsonb,
    parent_id uuid,
    parent_token text,
    trace text,
    created_by text,
    reason text,
    error_step text, -- the node that the last error came from
    last_error jsonb,
    data jsonb not null,
    waiting_kind text,
    waiting_until timestamptz,
    completed_at timestamptz,
    updated_at timestamptz not null,
    version bigint not null,
    last_by uuid,
    status holdfast.instance_status not null,
    state jsonb not null,
    error_code text, -- that of `last_error`, cut: a guard compares, since a generated column costs every statement its parsing
    primary key (id, bucket)  -- what else must hold is in the guards
) with (fillfactor = 50);
create unique index instances_idempotency on holdfast.instances (idempotency_key, org_id, flow, bucket)
    where idempotency_key is not null;
create unique index instances_active_entity on holdfast.instances (org_id, entity_type, entity_id, bucket)
    where entity_id is not null and status not in ('completed', 'failed', 'cancelled', 'aborted');
-- The condition always holds, but only a query by flow implies it: to all others, which know the id or the organisation
-- alone, this index is invisible and cannot tempt the planner away from the primary key while the table is small. The
-- moment stands before the id for the opposite reason: in that order only this index can serve a page of a list.
create index instances_by_flow on holdfast.instances (org_id, flow, created_at, id) where flow is not null;
create index instances_by_status on holdfast.instances (org_id, status, id) where status <> 'completed';
create index instances_by_parent on holdfast.instances (parent_id) where parent_id is not null;
create index instances_by_business_key on holdfast.instances (org_id, business_key, id)
    where business_key is not null;
create index instances_by_starter on holdfast.instances (org_id, created_by, id) where created_by is not null;
-- Both hold trouble only: an instance that completes without a failure never enters them. A code is whatever a handler
-- raised, so its beginning must do; it has a column, because row-level security keeps expressions out of an index.
create index instances_by_error on holdfast.instances (org_id, error_code, created_at, id)
    where error_code is not null;
create index instances_by_end on holdfast.instances (org_id, completed_at, id)
    where completed_at is not null and status <> 'completed';
-- For operators, over all organisations: what failed lately, and what stands still. Both columns are indexed anyway, so an
-- update of anything else still touches no index.
create index instances_stopped on holdfast.instances (status, completed_at)
    where status in ('failed', 'suspended', 'dlq');

-- What instances are found by: a row for each attribute that is a text, a number or a truth, written with the instance.
-- A table rather than an index over the JSON, because only this one gives the newest of a million without looking at all.
create table holdfast.instance_attributes (
    org_id text not null,
    name text collate "C" not null,
    value text collate "C" not null,
    instance_id uuid not null,
    bucket smallint not null,
    primary key (org_id, name, value, instance_id, bucket)
);

-- The form in which values are compared, with their kind before them; null for what cannot be searched for.
create function holdfast.attribute_value(given jsonb) returns text
language sql immutable parallel safe as $$
    select case when octet_length(given::text) <= 502 then
        case jsonb_typeof(given)
            when 'string' then 's' || (given #>> '{}')
            when 'number' then 'n' || trim_scale((given #>> '{}')::numeric)::text
            when 'boolean' then 'b' || (given #>> '{}')
        end
    end
$$;

-- Whether an instance is one that is searched for. `wished` has a key for each wish; moments are texts.
create function holdfast.fits(
    wished jsonb, status text, flow text, starter text, business_key text, attributes jsonb, reason text, error jsonb,
    error_step text, state jsonb, created_at timestamptz, completed_at timestamptz
) returns boolean
language sql stable parallel safe as $$
    select (not wished ? 'statuses' or wished -> 'statuses' ? status)
        and (not wished ? 'flow' or flow = wished ->> 'flow')
        and (not wished ? 'starter' or starter = wished ->> 'starter')
        and (not wished ? 'business_key' or business_key = wished ->> 'business_key')
        and (not wished ? 'attributes' or attributes @> (wished -> 'attributes'))
        and (not wished ? 'reason' or reason = wished ->> 'reason')
        and (not wished ? 'error' or error ->> 'code' = wished ->> 'error')
        and (not wished ? 'since' or created_at >= (wished ->> 'since')::timestamptz)
        and (not wished ? 'until' or created_at < (wished ->> 'until')::timestamptz)
        and (not wished ? 'ended_since' or completed_at >= (wished ->> 'ended_since')::timestamptz)
        and (not wished ? 'ended_until' or completed_at < (wished ->> 'ended_until')::timestamptz)
        and (not wished ? 'step' or error_step = wished ->> 'step' or exists (
            select from jsonb_each(state -> 'tokens') t where t.value ->> 'node' = wished ->> 'step'))
$$;

create function holdfast.letter_fits(
    wished jsonb, flow text, step text, source text, reason text, error jsonb, envelope jsonb, created_at timestamptz
) returns boolean
language sql stable parallel safe as $$
    select (not wished ? 'flow' or flow = wished ->> 'flow')
        and (not wished ? 'step' or step = wished ->> 'step')
        and (not wished ? 'source' or source = wished ->> 'source')
        and (not wished ? 'reason' or reason = wished ->> 'reason')
        and (not wished ? 'error' or error ->> 'code' = wished ->> 'error')
        and (not wished ? 'consumer' or source = 'ack' and envelope ->> 'consumer' = wished ->> 'consumer')
        and (not wished ? 'environment' or source = 'ack' and split_part(flow, '.', 1) = wished ->> 'environment')
        and (not wished ? 'since' or created_at >= (wished ->> 'since')::timestamptz)
$$;

-- The source of truth: one row per visit of a node. Its one index serves the key, the history and the close. What a step was
-- opened with stands first, what changes stands last and together, as with instances.
create table holdfast.steps (
    instance_id uuid not null,
    bucket smallint not null,
    run smallint not null,
    hop int not null,
    created_at timestamptz not null,
    id uuid not null,
    entity_version bigint not null,
    opened_version bigint not null,
    opened_ordinal smallint not null,
    org_id text not null,
    node text not null,
    behaviour text not null,
    path text not null,
    kind holdfast.step_kind not null,
    receipt_key bytea not null,
    opened_by text,
    cause text not null,
    input jsonb,
    detail jsonb,
    calls int not null default 0,
    fence bigint not null default 0,
    closed_version bigint,
    closed_at timestamptz,
    closed_ordinal smallint,
    status holdfast.step_status not null,
    outcome text,
    closed_by text,
    chosen_edge_ids jsonb,
    output jsonb,
    error jsonb,
    closing jsonb,
    primary key (instance_id, created_at, id, bucket)
) partition by range (created_at);

-- Outside the partitions, because only a key without the month can be unique over all months.
create table holdfast.step_receipts (
    instance_id uuid not null,
    token text not null,
    kind text not null,
    run smallint not null,
    bucket smallint not null,
    org_id text not null,
    key bytea not null,
    step_id uuid not null,
    created_at timestamptz not null,
    primary key (instance_id, token, kind, run, bucket)
);

create table holdfast.outbox_receipts (
    instance_id uuid not null,
    source text not null,
    key text not null,
    bucket smallint not null,
    org_id text not null,
    hash bytea,
    created_at timestamptz not null,
    primary key (instance_id, source, key, bucket)
);

-- Hand-off updates the token's row in place: no indexed column changes, and the fence lives as long as the token.
create table holdfast.work (
    instance_id uuid not null,
    path text not null,
    bucket smallint not null,
    org_id text not null,
    step_id uuid not null,
    step_created_at timestamptz not null,
    queue text not null,
    target text not null,  -- the queue of the present step: a hand-off may change it, the indexed one only follows later
    patience real,         -- seconds an attempt may take; a claim turns it into deadline_at
    worker uuid,
    fence bigint not null,
    ripe_at timestamptz not null,
    deadline_at timestamptz,
    missed_since timestamptz,  -- free work of a queue that no live worker serves: first seen then, and
    missed_at timestamptz,     -- last told of then; a claim forgets both
    ready_at timestamptz,      -- free for a worker since then; null: since its step was opened. `ripe_at` is a rank
    primary key (instance_id, path, bucket)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index work_ready on holdfast.work (queue, ripe_at) where worker is null;
create index work_owner on holdfast.work (worker) where worker is not null;
create index work_deadline on holdfast.work (deadline_at) where deadline_at is not null;
-- Parked work is in no queue until its moment, deadline_at, has come.
create index work_parked on holdfast.work (deadline_at) where queue = '';

-- Ready signals only: what is due later waits in timers, what came early waits in the inbox.
create table holdfast.signals (
    instance_id uuid not null,
    id uuid not null,
    bucket smallint not null,
    org_id text not null,
    kind text not null,
    payload jsonb not null default '{}',
    ripe_at timestamptz not null,
    attempts smallint not null default 0,
    error text,
    trace text,
    primary key (instance_id, id, bucket)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index signals_ready on holdfast.signals (ripe_at);

create table holdfast.inbox (
    instance_id uuid not null,
    id uuid not null,
    bucket smallint not null,
    org_id text not null,
    event text not null,
    payload jsonb,
    actor jsonb,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    node text, -- the step it is meant for, where the sender named one
    primary key (instance_id, id, bucket)
);
create index inbox_expiry on holdfast.inbox (expires_at);

-- The row whose lock serialises the sender of a keyed event with the commit that opens a wait for it.
create table holdfast.event_keys (
    org_id text not null,
    event text not null,
    key text not null,
    bucket smallint not null,
    primary key (org_id, event, key, bucket),
    constraint event_keys_names check (
        octet_length(event) between 1 and 200 and octet_length(key) between 1 and 500)
);

create table holdfast.key_events (
    org_id text not null,
    event text not null,
    key text not null,
    id uuid not null,
    bucket smallint not null,
    payload jsonb,
    actor jsonb,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (org_id, event, key, id, bucket)
);
create index key_events_expiry on holdfast.key_events (expires_at);

create table holdfast.key_waits (
    org_id text not null,
    event text not null,
    key text not null,
    instance_id uuid not null,
    token text not null,
    bucket smallint not null,
    instance_bucket smallint not null,
    step_id uuid not null,
    created_at timestamptz not null,
    primary key (org_id, event, key, instance_id, token, bucket)
);
create index key_waits_by_instance on holdfast.key_waits (instance_id);

create table holdfast.timers (
    instance_id uuid not null,
    id uuid not null,
    bucket smallint not null,
    org_id text not null,
    purpose text not null,
    wait text not null,
    payload jsonb,
    due_at timestamptz not null,
    created_at timestamptz not null,
    primary key (instance_id, id, bucket)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index timers_due on holdfast.timers (due_at);

create table holdfast.dead_letters (
    id uuid not null,
    bucket smallint not null,
    org_id text not null,
    instance_id uuid not null,
    flow text not null,
    step text,  -- the node it is about; null: the instance as a whole
    source text not null,
    envelope jsonb not null,
    reason text not null,
    error jsonb,
    attempts int not null default 0,
    worker uuid,
    created_at timestamptz not null,
    resolved_at timestamptz,
    resolution text,
    resolved_by text,
    resolved_why text,
    error_code text generated always as (left(error ->> 'code', 200)) stored,
    primary key (id, bucket),
    constraint dead_letters_resolution check ((resolved_at is null) = (resolution is null))
);
create index dead_letters_open on holdfast.dead_letters (org_id, id) where resolved_at is null;
-- With the moment before the id, as in that of instances by flow, and what is open said in other words: so a search cannot
-- be tempted to walk all that is open, nor a change of one letter to walk these.
create index dead_letters_by_flow on holdfast.dead_letters (org_id, flow, created_at, id)
    where num_nonnulls(resolved_at) = 0;
create index dead_letters_by_error on holdfast.dead_letters (org_id, error_code, created_at, id)
    where num_nonnulls(resolved_at) = 0 and error_code is not null;
create index dead_letters_by_instance on holdfast.dead_letters (instance_id);

create table holdfast.effects (
    instance_id uuid not null,
    bucket smallint not null,
    created_at timestamptz not null,
    id uuid not null,
    org_id text not null,
    step_id uuid not null,
    step_created_at timestamptz not null,
    token text not null,
    effect_type text not null,
    payload jsonb not null,
    key text not null,
    awaited boolean not null,
    status text not null default 'pending',
    attempts int not null default 0,
    max_attempts int not null,
    next_attempt_at timestamptz not null,
    worker uuid,
    fence bigint not null default 0,
    evidence jsonb,
    error jsonb,
    trace text,
    completed_at timestamptz,
    primary key (instance_id, created_at, id, bucket),
    constraint effects_status check (status in ('pending', 'processing', 'completed', 'failed', 'dead_letter')),
    constraint effects_completed check (completed_at is null or status in ('completed', 'dead_letter'))
) partition by range (created_at);
create index effects_ready on holdfast.effects (next_attempt_at) where status in ('pending', 'failed');

create table holdfast.events (
    instance_id uuid not null,
    bucket smallint not null,
    created_at timestamptz not null,
    version bigint not null,
    ordinal smallint not null,
    org_id text not null,
    type text not null,
    node text,
    token text,
    actor text,
    detail jsonb,
    primary key (instance_id, version, created_at, ordinal, bucket)
) partition by range (created_at);

-- What commits ended and nobody has folded yet: one row per commit and organisation, without any key, so that writers
-- share nothing. Each element is [flow, version, node, outcome, [[bar, count, total, least, most], …]].
create table holdfast.statistics_deltas (
    org_id text not null,
    hour timestamptz not null,
    tallies jsonb not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- The sums: by the hour, and of all times under the hour '-infinity'. The node '' is the flow itself; the bar is the place
-- in the histogram of durations, -1 for what has none; times are microseconds. Names sort by byte, so that one flow and all
-- flows are each one range of the key.
create table holdfast.statistics (
    org_id text not null,
    hour timestamptz not null,
    flow text collate "C" not null,
    flow_version int not null,
    node text not null,
    outcome text not null,
    bar smallint not null,
    count bigint not null,
    total bigint not null,
    least bigint not null,
    most bigint not null,
    primary key (org_id, hour, flow, flow_version, node, outcome, bar)
) with (fillfactor = 70);

-- One row per process start; a dead incarnation is never revived.
create table holdfast.workers (
    id uuid primary key,
    host text not null,
    pid int not null,
    version text not null,
    queues text[] not null,
    started_at timestamptz not null,
    lease_until timestamptz not null,
    stopped_at timestamptz,
    origins jsonb not null default '{}' -- where the code of a handler is, by its name
);

-- A bucket of tokens per limited step. `planned_until` is when the last of those that got none comes again; the last four
-- say how it was asked, which the answer is computed from.
create table holdfast.rate_limits (
    org_id text not null,
    key text not null,
    tokens double precision not null,
    refilled_at timestamptz not null,
    planned_until timestamptz not null,
    rate real not null,
    burst real not null,
    asked int not null,
    granted int not null,
    primary key (org_id, key)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- Which login may act for which organisation when it calls the SQL functions.
create table holdfast.tenant_grants (
    role_name text not null,
    org_id text not null,
    primary key (role_name, org_id)
);

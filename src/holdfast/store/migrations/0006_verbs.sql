-- Start, signal and cancel for triggers, other languages and callers with a transaction of their own.
-- They only insert rows: no instance is locked and nothing is decided here, so the caller's transaction stays short
-- and can roll everything back. Error codes end in the HTTP status that means the same: HF403, HF404, HF409, HF413,
-- HF422.

-- The organisation to act for. Workers may name any; every other login only those granted to it.
create function holdfast.acting_org(org text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    wanted text := coalesce(nullif(org, ''), nullif(current_setting('holdfast.org', true), ''));
    granted text[];
begin
    if pg_has_role(session_user, 'holdfast_worker', 'member') then
        return coalesce(wanted, 'default');
    end if;
    granted := array(select g.org_id from holdfast.tenant_grants g where g.role_name = session_user);
    if wanted is null and cardinality(granted) = 1 then
        return granted[1];
    end if;
    if wanted is null or wanted <> all (granted) then
        raise exception 'Login "%" may not act for organisation "%"', session_user, coalesce(wanted, '')
            using errcode = 'HF403', hint = 'Insert (role_name, org_id) into holdfast.tenant_grants to allow it.';
    end if;
    return wanted;
end
$$;

create function holdfast.check_name(label text, name text, longest int) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if octet_length(name) not between 1 and longest then
        raise exception 'The % has % bytes; 1 to % are allowed', label, octet_length(name), longest
            using errcode = 'HF422';
    end if;
end
$$;

-- The same limits as everywhere else: 2 MiB, 64 levels, integers of 64 bits. The cheap test always comes first.
create function holdfast.check_payload(label text, payload jsonb) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    written text := payload::text;
begin
    if octet_length(written) > 2097152 then
        raise exception 'The % is % bytes of JSON; at most 2097152 can be stored', label, octet_length(written)
            using errcode = 'HF413', hint = 'Store the content elsewhere and pass a reference to it.';
    end if;
    if length(written) > 128 and jsonb_path_exists(
        payload, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")'
    ) then
        raise exception 'The % is nested deeper than 64 levels', label using errcode = 'HF422';
    end if;
    -- With a zero behind the point it is a float, and comes back as one.
    if written ~ '[0-9]{19}' and exists (
        select from jsonb_path_query(
            payload, 'strict $.** ? (@.type() == "number" && (@ > 9223372036854775807 || @ < -9223372036854775808))'
        ) as number where scale((number #>> '{}')::numeric) = 0
    ) then
        raise exception 'The % holds an integer beyond 64 bits', label
            using errcode = 'HF422', hint = 'Pass large numbers as strings.';
    end if;
end
$$;

-- A hint only, with a constant payload; a caller with an on-commit hook of its own switches it off.
create function holdfast.wake_workers() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('holdfast.notify', true) is distinct from 'off' then
        perform pg_notify('holdfast', '');
    end if;
end
$$;

-- The status of an instance as this transaction sees it; another organisation's instance does not exist.
create function holdfast.status_of(instance uuid, tenant text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    found_status text;
begin
    select i.status into found_status
    from holdfast.instances i
    where i.id = instance and i.bucket = get_byte(uuid_send(instance), 15) and i.org_id = tenant;
    if found_status is null then
        raise exception 'There is no instance %', instance
            using errcode = 'HF404', hint = 'Check the id and the organisation it belongs to.';
    end if;
    return found_status;
end
$$;

create function holdfast.refuse_terminal(instance uuid, status text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if status in ('completed', 'failed', 'cancelled', 'aborted') then
        raise exception 'Instance % is already %', instance, status using errcode = 'HF409';
    end if;
end
$$;

create function holdfast.actor_of(by text) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    perform holdfast.check_name('actor', by, 2000);
    return jsonb_build_object('id', coalesce(by, session_user::text));
end
$$;

-- The compiler of the release this schema belongs to; a release with another one brings a migration that says so.
create function holdfast.compiler_version() returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return '1';
end
$$;

-- New instances only: those that run stay on what they pinned.
create function holdfast.refuse_stale(flow text, version int, compiler text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if compiler is distinct from holdfast.compiler_version() then
        raise exception '"%" version % was compiled by compiler %, this is compiler %', flow, version, compiler,
            holdfast.compiler_version()
            using errcode = 'HF422', hint =
                'Publish the definition as a new version; running instances keep the old one until they are migrated.';
    end if;
end
$$;

-- The newest published definition that can be executed; an organisation's own comes before the system's.
create function holdfast.startable(flow text, version int, tenant text, out definition_id uuid, out flow_version int)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    compiler text;
begin
    select d.id, d.version, d.compiler_version into definition_id, flow_version, compiler
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
    perform holdfast.refuse_stale(flow, flow_version, compiler);
end
$$;

create function holdfast.check_attributes(attributes jsonb) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if attributes is null then
        return;
    end if;
    if jsonb_typeof(attributes) <> 'object' then
        raise exception 'The attributes must be an object' using errcode = 'HF422', hint = 'Give names and values.';
    end if;
    if exists (select from jsonb_object_keys(attributes) k where octet_length(k) not between 1 and 200) then
        raise exception 'The name of an attribute has 1 to 200 bytes' using errcode = 'HF422';
    end if;
    perform holdfast.check_payload('attributes', attributes);
end
$$;

-- Stores a pending instance. The same key with the same input answers the instance that is already there.
create function holdfast.start(
    flow text,
    input jsonb default '{}',
    key text default null,
    version int default null,
    business_key text default null,
    by text default null,
    org text default null,
    attributes jsonb default null,
    trace text default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    given jsonb := coalesce(input, '{}');
    -- The idempotency key decides the bucket before the business key does: its uniqueness lives inside one bucket.
    instance uuid := holdfast.new_id(holdfast.bucket_of(tenant, coalesce(key, business_key)));
    pinned record;
    earlier record;
    moment timestamptz := holdfast.clock();
begin
    perform holdfast.check_name('key', key, 500);
    perform holdfast.check_name('business key', business_key, 500);
    perform holdfast.check_name('actor', by, 2000);
    perform holdfast.check_name('trace', trace, 500);
    perform holdfast.check_payload('input', given);
    perform holdfast.check_attributes(attributes);
    select * into pinned from holdfast.startable(flow, version, tenant);

    insert into holdfast.instances (
        id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data, input,
        idempotency_key, business_key, created_by, attributes, trace, created_at, updated_at
    ) values (
        instance, get_byte(uuid_send(instance), 15), tenant, pinned.definition_id, start.flow, pinned.flow_version,
        'pending', 0, '{}', case when jsonb_typeof(given) = 'object' then given else '{}' end, given,
        start.key, start.business_key, start.by, start.attributes, start.trace, moment, moment
    ) on conflict do nothing;

    if not found then
        select i.id, i.input into earlier
        from holdfast.instances i
        where i.idempotency_key = start.key and i.org_id is not distinct from tenant and i.flow is not distinct from start.flow
          and i.bucket = get_byte(uuid_send(instance), 15);
        if earlier.id is null then
            raise exception 'The instance with key "%" vanished meanwhile; try again', key using errcode = '40001';
        end if;
        if earlier.input <> given then
            raise exception 'Key "%" of flow "%" already started % with another input', key, flow, earlier.id
                using errcode = 'HF409', hint = 'Use a new key for a new input.';
        end if;
        return earlier.id;
    end if;

    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, trace, ripe_at)
    values (
        instance, holdfast.new_id(get_byte(uuid_send(instance), 15)), get_byte(uuid_send(instance), 15), tenant,
        'started', '{}', start.trace, moment
    );
    perform holdfast.wake_workers();
    return instance;
end
$$;

-- What makes two signals of one id the same signal: what it says, not who said it. The engine asks here too.
create function holdfast.signal_digest(event text, payload jsonb, node text) returns bytea
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return sha256(convert_to(jsonb_build_array(event, payload, node)::text, 'UTF8'));
end
$$;

create function holdfast.refuse_version(instance uuid, tenant text, wanted bigint) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    present bigint;
begin
    if wanted is null then
        return;
    end if;
    select i.version into present
    from holdfast.instances i
    where i.id = instance and i.bucket = get_byte(uuid_send(instance), 15) and i.org_id = tenant;
    if present is distinct from wanted then
        raise exception 'Instance % is at version %, not %', instance, present, wanted
            using errcode = 'HF409', hint = 'Read it again and decide on what you see then.';
    end if;
end
$$;

create function holdfast.check_due(due_at timestamptz, delay interval, moment timestamptz) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if delay < interval '0' then
        raise exception 'The delay % is negative', delay using errcode = 'HF422';
    end if;
    if due_at is not null and (not isfinite(due_at) or due_at > moment + interval '100 years') then
        raise exception 'The due time % is more than 100 years away', due_at using errcode = 'HF422';
    end if;
end
$$;

-- The actor of a signal. Capabilities and roles are the word of whoever authenticated the actor: only a worker's login
-- has it.
create function holdfast.actor_with(by text, capabilities text[], roles text[] default null) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(cardinality(capabilities), 0) + coalesce(cardinality(roles), 0) = 0 then
        return holdfast.actor_of(by);
    end if;
    if not pg_has_role(session_user, 'holdfast_worker', 'member') then
        raise exception 'Login "%" may not vouch for capabilities and roles', session_user
            using errcode = 'HF403', hint = 'Send the signal as a login that has the role holdfast_worker.';
    end if;
    return holdfast.actor_of(by)
        || jsonb_strip_nulls(jsonb_build_object('capabilities', to_jsonb(capabilities), 'roles', to_jsonb(roles)));
end
$$;

-- Sends an event to one instance. The same signal id counts once; with other content it is a conflict. With a due time it
-- waits among the timers until then, and what it expects of the instance is checked then.
create function holdfast.signal(
    instance uuid,
    event text,
    payload jsonb default null,
    id uuid default null,
    node text default null,
    by text default null,
    org text default null,
    token text default null,
    if_version bigint default null,
    due_at timestamptz default null,
    delay interval default null,
    capabilities text[] default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    status text := holdfast.status_of(instance, tenant);
    shard smallint := get_byte(uuid_send(instance), 15);
    signal_id uuid := coalesce(id, holdfast.new_id(shard));
    content bytea := holdfast.signal_digest(event, payload, node);
    moment timestamptz := holdfast.clock();
    ripe timestamptz := coalesce(due_at, moment + delay);
    envelope jsonb := jsonb_strip_nulls(jsonb_build_object(
        'event', event, 'node', node, 'token', token, 'if_version', if_version, 'occurred_at', moment,
        'due_at', ripe)) || jsonb_build_object('payload', payload, 'actor', holdfast.actor_with(by, capabilities));
    earlier bytea;
begin
    perform holdfast.check_name('event', coalesce(event, ''), 200);
    perform holdfast.check_payload('payload', payload);
    perform holdfast.check_due(ripe, delay, moment);

    insert into holdfast.outbox_receipts (instance_id, source, key, bucket, org_id, hash, created_at)
    values (instance, 'signal', signal_id::text, shard, tenant, content, moment)
    on conflict do nothing;
    if not found then
        select r.hash into earlier
        from holdfast.outbox_receipts r
        where r.instance_id = instance and r.source = 'signal' and r.key = signal_id::text and r.bucket = shard;
        if earlier is distinct from content then
            raise exception 'Signal % was already sent to instance % with other content', signal_id, instance
                using errcode = 'HF409', hint = 'Use a new id for a new signal.';
        end if;
        return signal_id;
    end if;

    perform holdfast.refuse_terminal(instance, status);
    if ripe > moment then
        insert into holdfast.timers (instance_id, id, bucket, org_id, purpose, wait, payload, due_at, created_at)
        values (instance, signal_id, shard, tenant, 'signal', event, envelope, ripe, moment);
    else
        perform holdfast.refuse_version(instance, tenant, if_version);
        insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
        values (instance, signal_id, shard, tenant, 'event', envelope, moment);
    end if;
    perform holdfast.wake_workers();
    return signal_id;
end
$$;

-- Sends an event to every instance that waits for (event, key), now or before it expires.
create function holdfast.signal_key(
    event text,
    key text,
    payload jsonb default null,
    id uuid default null,
    by text default null,
    org text default null,
    keep interval default '7 days'
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    tenant text := holdfast.acting_org(org);
    shard smallint := holdfast.bucket_of(tenant, key);
    event_id uuid := coalesce(id, holdfast.new_id(shard));
    actor jsonb := holdfast.actor_of(by);
    earlier record;
    moment timestamptz := holdfast.clock();
begin
    perform holdfast.check_name('event', coalesce(event, ''), 200);
    perform holdfast.check_name('key', coalesce(key, ''), 500);
    perform holdfast.check_payload('payload', payload);
    if keep is null or keep < interval '0' or keep > interval '100 years' then
        raise exception 'An event is kept for 0 seconds to 100 years, not for %', keep using errcode = 'HF422';
    end if;

    -- Held until the end of the transaction: a commit that opens a wait sees this event or is seen here, never neither.
    insert into holdfast.event_keys as k (org_id, event, key, bucket)
    values (tenant, signal_key.event, signal_key.key, shard)
    on conflict (org_id, event, key, bucket) do update set event = k.event;

    insert into holdfast.key_events (org_id, event, key, id, bucket, payload, actor, created_at, expires_at)
    values (
        tenant, signal_key.event, signal_key.key, event_id, shard, signal_key.payload, actor, moment, moment + keep
    ) on conflict do nothing;
    if not found then
        select e.payload, e.actor into earlier
        from holdfast.key_events e
        where e.org_id = tenant and e.event = signal_key.event and e.key = signal_key.key and e.id = event_id
          and e.bucket = shard;
        if earlier.payload is distinct from signal_key.payload or earlier.actor is distinct from actor then
            raise exception 'Event % was already sent to key "%" with other content', event_id, key
                using errcode = 'HF409', hint = 'Use a new id for a new event.';
        end if;
        return event_id;
    end if;

    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
    select
        w.instance_id,
        md5(event_id::text || '|' || w.instance_id::text || '|' || w.token)::uuid,
        w.instance_bucket,
        tenant,
        'event',
        jsonb_build_object('event', signal_key.event, 'payload', signal_key.payload, 'token', w.token,
            'step', w.step_id, 'actor', actor, 'keyed', event_id, 'occurred_at', moment),
        moment
    from holdfast.key_waits w
    where w.org_id = tenant and w.event = signal_key.event and w.key = signal_key.key and w.bucket = shard
    on conflict do nothing;
    perform holdfast.wake_workers();
    return event_id;
end
$$;

-- Asks an instance to stop; whether it rolls back is its graph's policy. Answers the signal's id.
create function holdfast.cancel(
    instance uuid,
    reason text default null,
    by text default null,
    org text default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    shard smallint := get_byte(uuid_send(instance), 15);
    signal_id uuid := holdfast.new_id(shard);
begin
    perform holdfast.check_name('actor', by, 2000);
    perform holdfast.check_name('reason', reason, 2000);
    perform holdfast.refuse_terminal(instance, holdfast.status_of(instance, tenant));
    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
    values (
        instance, signal_id, shard, tenant, 'cancel',
        jsonb_build_object('reason', reason, 'actor', holdfast.actor_of(by)), holdfast.clock()
    );
    perform holdfast.wake_workers();
    return signal_id;
end
$$;

-- One instance as this transaction sees it; null when there is none for the organisation.
create function holdfast.get(instance uuid, org text default null) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant text := holdfast.acting_org(org);
    found_row jsonb;
begin
    select jsonb_build_object(
        'id', t.id, 'org', t.org_id, 'flow', t.flow, 'flow_version', t.flow_version, 'status', t.status,
        'reason', t.reason, 'version', t.version, 'data', t.data, 'input', t.input, 'key', t.idempotency_key,
        'business_key', t.business_key, 'parent_id', t.parent_id, 'waiting_for', t.waiting_kind,
        'waiting_until', t.waiting_until, 'error', t.last_error, 'created_by', t.created_by,
        'created_at', t.created_at, 'updated_at', t.updated_at, 'completed_at', t.completed_at,
        'attributes', t.attributes)
    into found_row
    from holdfast.instances t
    where t.id = instance and t.bucket = get_byte(uuid_send(instance), 15) and t.org_id = tenant;
    return found_row;
end
$$;

revoke all on function
    holdfast.acting_org, holdfast.check_name, holdfast.check_payload, holdfast.check_attributes, holdfast.wake_workers,
    holdfast.status_of,
    holdfast.refuse_terminal, holdfast.refuse_version, holdfast.check_due, holdfast.actor_of, holdfast.actor_with,
    holdfast.compiler_version, holdfast.refuse_stale, holdfast.startable,
    holdfast.start, holdfast.signal, holdfast.signal_key, holdfast.cancel, holdfast.get, holdfast.signal_digest
    from public;
grant execute on function holdfast.start, holdfast.signal, holdfast.signal_key, holdfast.cancel, holdfast.get
    to holdfast_worker, holdfast_tenant;
grant execute on function holdfast.signal_digest to holdfast_worker;

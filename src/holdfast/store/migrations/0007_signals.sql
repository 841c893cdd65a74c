-- Signals with a due time, an expected version and a waiting token; early events that are taken once; dead letters that
-- tell how they were resolved; the runtime columns of an instance as a view.

-- A snapshot names its own format (absent: 1), so that the hot update need not write a column for it.
alter table holdfast.instances drop column snapshot_format;

alter table holdfast.dead_letters add column resolved_why text;

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

-- The actor of a signal. Capabilities are the word of whoever authenticated the actor: only a worker's login has it.
create function holdfast.actor_with(by text, capabilities text[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if cardinality(capabilities) is null or cardinality(capabilities) = 0 then
        return holdfast.actor_of(by);
    end if;
    if not pg_has_role(session_user, 'holdfast_worker', 'member') then
        raise exception 'Login "%" may not vouch for capabilities', session_user
            using errcode = 'HF403', hint = 'Send the signal as a login that has the role holdfast_worker.';
    end if;
    return holdfast.actor_of(by) || jsonb_build_object('capabilities', to_jsonb(capabilities));
end
$$;

drop function holdfast.signal(uuid, text, jsonb, uuid, text, text, text);

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

drop function holdfast.signal_key(text, text, jsonb, uuid, text, text);

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

revoke all on function
    holdfast.refuse_version, holdfast.check_due, holdfast.actor_with, holdfast.signal, holdfast.signal_key
    from public;
grant execute on function holdfast.signal, holdfast.signal_key to holdfast_worker, holdfast_tenant;

-- What the engine would resume an instance from, one row each, read with the rights and the organisation of the reader.
create view holdfast.runtime with (security_invoker = true) as
select
    i.id as instance_id,
    i.bucket,
    i.org_id,
    i.flow,
    i.flow_version,
    i.status,
    i.version as state_version,
    coalesce((i.state ->> 'format')::int, 1) as snapshot_format,
    i.waiting_kind,
    coalesce(w.wait, p.resting) as waiting_token,
    i.waiting_until,
    p.active_step,
    p.resume_pointer,
    s.last_signal,
    i.last_error ->> 'code' as last_error_code,
    i.last_error,
    i.last_by as last_executed_by,
    i.updated_at as last_executed_at
from holdfast.instances i
left join lateral (
    select x.wait ->> 'id' as wait
    from jsonb_each(i.state -> 'tokens') t
    cross join lateral jsonb_array_elements(t.value -> 'waits') as x(wait)
    order by x.wait ->> 'kind' is distinct from i.waiting_kind, (x.wait ->> 'due')::bigint, t.key
    limit 1
) w on true
left join lateral (
    select
        jsonb_agg(jsonb_build_object(
            'token', t.key || '@' || (t.value ->> 'hop'),
            'node', t.value ->> 'node',
            'phase', coalesce(t.value ->> 'phase', 'working'),
            'step', encode(decode(t.value ->> 'step', 'base64'), 'hex')::uuid,
            'run', coalesce((t.value ->> 'run')::int, 0)) order by t.key) as resume_pointer,
        min(t.key || '@' || (t.value ->> 'hop')) filter (where t.value ->> 'phase' = 'resting') as resting,
        (min(encode(decode(t.value ->> 'step', 'base64'), 'hex')))::uuid as active_step
    from jsonb_each(i.state -> 'tokens') t
) p on true
left join lateral (
    select coalesce((e.detail ->> 'id')::uuid::text, e.detail ->> 'wait') as last_signal
    from holdfast.events e
    where e.instance_id = i.id and e.bucket = i.bucket and e.type in ('event_received', 'timer_fired')
    order by e.created_at desc, e.version desc, e.ordinal desc
    limit 1
) s on true;

grant select on holdfast.runtime to holdfast_worker, holdfast_tenant;

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
    order by e.version desc, e.created_at desc, e.ordinal desc
    limit 1
) s on true;

grant select on holdfast.runtime to holdfast_worker, holdfast_tenant;

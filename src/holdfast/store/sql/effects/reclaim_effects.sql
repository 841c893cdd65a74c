-- Recovery: effects of workers without a live lease, or past their deadline, are due again under a new fence.
with lost as materialized (
    select t.instance_id, t.created_at, t.id, t.bucket from holdfast.effects t
    where t.status = 'processing' and (
        t.deadline_at < (select holdfast.clock())
        or not exists (select from holdfast.workers w where w.id = t.worker and w.lease_until > clock_timestamp()))
    limit $1::bigint
    for update skip locked
), freed as (
    update holdfast.effects t set status = 'failed', worker = null, fence = t.fence + 1, deadline_at = null,
        next_attempt_at = (select holdfast.clock()),
        error = jsonb_build_object('code', 'LEASE_LOST', 'message',
            'The worker was lost while it delivered, and whether the target was reached is unknown.')
    from lost l
    where t.instance_id = any(array[l.instance_id]) and t.created_at = l.created_at and t.id = l.id
        and t.bucket = l.bucket
    returning t.*
), noted as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, token, actor, detail, created_at)
    select f.instance_id, f.bucket, f.org_id, i.version, 1000 + row_number() over (order by f.id), 'effect_failed', f.token,
        'system', jsonb_build_object('effect', encode(uuid_send(f.id), 'hex'), 'type', f.effect_type,
            'attempt', f.attempts, 'code', f.error -> 'code', 'message', f.error -> 'message'),
        holdfast.date_beside(i.id, i.bucket, i.version, i.updated_at, (select holdfast.clock()))
    from freed f
    join holdfast.instances i on i.id = any(array[f.instance_id]) and i.bucket = f.bucket
)
select f.id, f.instance_id, f.org_id, f.effect_type, f.target, f.attempts, i.flow, s.node
from freed f
cross join lateral (
    select i.flow from holdfast.instances i
    where i.id = any(array[f.instance_id]) and i.bucket = f.bucket
    limit 1
) i
left join lateral (
    select t.node from holdfast.steps t
    where t.instance_id = f.instance_id and t.created_at = f.step_created_at and t.id = f.step_id
        and t.bucket = f.bucket
    limit 1
) s on true

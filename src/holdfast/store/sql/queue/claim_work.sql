-- Lease ripe work of the queues this worker serves and count the call, before any handler starts. A dead lease takes none.
-- What is not to be run any more counts no call.
with ripe as materialized (
    select w.instance_id, w.path, w.bucket
    from unnest($1::text[]) as q(queue)
    cross join lateral (
        select t.instance_id, t.path, t.bucket, t.ripe_at from holdfast.work t
        where t.queue = q.queue and t.worker is null
        order by t.ripe_at limit $2::bigint
        for update skip locked
    ) w
    where exists (select from holdfast.workers d where d.id = $3::uuid and d.lease_until > clock_timestamp())
    order by w.ripe_at limit $2::bigint
), leased as (
    update holdfast.work t set worker = $3::uuid, fence = t.fence + 1,
        deadline_at = (select holdfast.clock()) + t.patience * interval '1 second', missed_since = null, missed_at = null
    from ripe r
    where t.instance_id = any(array[r.instance_id]) and t.path = r.path and t.bucket = r.bucket
    returning t.*, t.queue in ('told to stop', 'not to start') as unrun
), counted as (
    update holdfast.steps s set calls = s.calls + case when l.unrun then 0 else 1 end, fence = l.fence
    from leased l
    where s.instance_id = any(array[l.instance_id]) and s.created_at = l.step_created_at and s.id = l.step_id
        and s.bucket = l.bucket
    returning l.instance_id, l.path, l.step_id, l.fence, l.bucket, s.node, s.input, s.calls, s.hop, s.created_at, l.unrun
)
select c.instance_id, c.path, c.step_id, c.fence, c.node, c.input, c.calls, c.hop, i.definition_id, i.org_id, i.trace,
    i.version, c.unrun
from counted c
join holdfast.instances i on i.id = any(array[c.instance_id]) and i.bucket = c.bucket

-- Work is free again, under a new fence: that of workers whose lease is over, past its own deadline, parked until now.
with dead as materialized (
    select t.instance_id, t.path, t.bucket, t.is_parked
    from holdfast.workers d
    cross join lateral (
        select w.instance_id, w.path, w.bucket, w.queue = '' as is_parked from holdfast.work w
        where w.worker = any(array[d.id])
        limit $1::bigint
        for update skip locked
    ) t
    where d.lease_until <= clock_timestamp()
    limit $1::bigint
), late as materialized (
    select w.instance_id, w.path, w.bucket, w.queue = '' as is_parked from holdfast.work w
    where w.deadline_at < (select holdfast.clock()) - interval '5 seconds'
    limit $1::bigint
    for update skip locked
), parked as materialized (
    select w.instance_id, w.path, w.bucket, w.queue = '' as is_parked from holdfast.work w
    where w.queue = '' and w.deadline_at <= (select holdfast.clock())
    order by w.deadline_at limit $1::bigint
    for update skip locked
), lost as (
    select * from dead
    union
    select * from late
    union
    select * from parked
), freed as (
    update holdfast.work t set worker = null, queue = t.target, fence = t.fence + 1, deadline_at = null,
        ready_at = (select holdfast.clock())
    from lost l
    where t.instance_id = any(array[l.instance_id]) and t.path = l.path and t.bucket = l.bucket
    returning t.instance_id, t.bucket, t.step_id, t.step_created_at, l.is_parked
)
select f.instance_id, i.flow, s.node, i.org_id, s.calls, f.is_parked
from freed f
cross join lateral (
    select s.node, s.calls from holdfast.steps s
    where s.instance_id = any(array[f.instance_id]) and s.created_at = f.step_created_at
        and s.id = f.step_id and s.bucket = f.bucket
    limit 1
) s
cross join lateral (
    select i.flow, i.org_id from holdfast.instances i
    where i.id = any(array[f.instance_id]) and i.bucket = f.bucket
    limit 1
) i

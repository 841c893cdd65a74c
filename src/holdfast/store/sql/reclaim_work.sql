-- Work is free again, under a new fence: that of workers whose lease is over, past its own deadline, parked until now.
with dead as materialized (
    select t.instance_id, t.path, t.bucket
    from holdfast.workers d
    cross join lateral (
        select w.instance_id, w.path, w.bucket from holdfast.work w
        where w.worker = any(array[d.id])
        limit $1::bigint
        for update skip locked
    ) t
    where d.lease_until <= clock_timestamp()
    limit $1::bigint
), late as materialized (
    select w.instance_id, w.path, w.bucket from holdfast.work w
    where w.deadline_at < (select holdfast.clock()) - interval '5 seconds'
    limit $1::bigint
    for update skip locked
), parked as materialized (
    select w.instance_id, w.path, w.bucket from holdfast.work w
    where w.queue = '' and w.deadline_at <= (select holdfast.clock())
    order by w.deadline_at limit $1::bigint
    for update skip locked
), lost as (
    select * from dead
    union
    select * from late
    union
    select * from parked
)
update holdfast.work t set worker = null, queue = t.target, fence = t.fence + 1, deadline_at = null
from lost l
where t.instance_id = any(array[l.instance_id]) and t.path = l.path and t.bucket = l.bucket
returning t.queue

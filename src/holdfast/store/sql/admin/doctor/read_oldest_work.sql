-- Per queue with free work: how long the oldest of the first in line has been ready, and whether a live worker serves it.
with recursive queues as (
    (select w.queue from holdfast.work w where w.worker is null and w.queue > '' order by w.queue limit 1)
    union all
    select (select w.queue from holdfast.work w where w.worker is null and w.queue > q.queue order by w.queue limit 1)
    from queues q where q.queue is not null
)
select q.queue, extract(epoch from (select holdfast.clock()) - f.since)::float8,
    exists (select from holdfast.workers d
        where d.lease_until > clock_timestamp() and d.stopped_at is null and q.queue = any(d.queues))
from queues q
cross join lateral (
    select min(h.since) as since from (
        select coalesce(w.ready_at, w.step_created_at) as since from holdfast.work w
        where w.worker is null and w.queue = q.queue
        order by w.ripe_at limit 10000
    ) h
) f
where q.queue <> 'dead letter'

-- Per queue with free work (parked work is in none): how long the first in line has been ripe, and whether a live worker serves the queue.
with recursive queues as (
    (select w.queue from holdfast.work w where w.worker is null and w.queue > '' order by w.queue limit 1)
    union all
    select (select w.queue from holdfast.work w where w.worker is null and w.queue > q.queue order by w.queue limit 1)
    from queues q where q.queue is not null
)
select q.queue, a.age + 3155760000.0 * greatest(0, ceil(-a.age / 3155760000.0 - 0.5)),
    exists (select from holdfast.workers d
        where d.lease_until > clock_timestamp() and d.stopped_at is null and q.queue = any(d.queues))
from queues q
cross join lateral (
    select w.ripe_at from holdfast.work w where w.worker is null and w.queue = q.queue order by w.ripe_at limit 1
) f
-- Without aging a point of priority is a century in `ripe_at`: whole centuries are not part of the waiting.
cross join lateral (select extract(epoch from (select holdfast.clock()) - f.ripe_at)::float8 as age) a
where q.queue <> 'dead letter'

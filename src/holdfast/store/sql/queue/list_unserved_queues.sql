-- Queues with free work that no live worker serves: how many steps wait at the head of each, and for how long.
-- Work that is parked is in the queue without a name.
with recursive queues as (
    (select w.queue from holdfast.work w where w.worker is null and w.queue > '' order by w.queue limit 1)
    union all
    select (select w.queue from holdfast.work w where w.worker is null and w.queue > q.queue order by w.queue limit 1)
    from queues q where q.queue is not null
), unserved as materialized (
    select q.queue from queues q
    where q.queue <> 'dead letter' and q.queue <> all (array(
        select distinct (unnest(d.queues)) from holdfast.workers d
        where d.lease_until > clock_timestamp() and d.stopped_at is null))
)
select u.queue, h.waiting, (extract(epoch from (select holdfast.clock()) - h.since) * 1000)::bigint
from unserved u
cross join lateral (
    select count(*) as waiting, coalesce(min(w.missed_since), (select holdfast.clock())) as since
    from (
        select t.missed_since from holdfast.work t
        where t.queue = any(array[u.queue]) and t.worker is null
        order by t.ripe_at limit $1::bigint
    ) w
) h

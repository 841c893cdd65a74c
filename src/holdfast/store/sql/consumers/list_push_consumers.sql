-- Consumers that are pushed to, with their targets; for one that could not be reached, the microseconds until its next probe.
select c.id, c.org_id, c.environment, c.name, c.in_flight, c.target,
    (extract(epoch from b.reachable_at - clock_timestamp()) * 1000000)::bigint
from holdfast.consumers c
cross join lateral (
    select x.reachable_at from holdfast.consumer_beats x where x.consumer_id = c.id and x.bucket = c.bucket limit 1
) b
where c.way = 'push' and c.removed_at is null and c.filled_to is null

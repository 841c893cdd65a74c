-- Consumers of all organisations that are behind: open facts up to a limit, and microseconds since the oldest.
select c.org_id, c.environment, c.name, o.open, (extract(epoch from (select holdfast.clock()) - o.oldest) * 1000000)::bigint
from holdfast.consumers c
cross join lateral (
    select count(*) as open, min(q.created_at) as oldest from (
        select d.created_at from holdfast.ack_consumers d
        where d.consumer_id = c.id and num_nulls(d.closed_at) = 1
        order by d.created_at limit $1::bigint
    ) q
) o
where c.removed_at is null
order by c.org_id, c.environment, c.name limit $2::bigint

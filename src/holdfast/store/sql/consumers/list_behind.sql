-- Consumers of all organisations that are behind: open facts up to a limit, and microseconds since the oldest.
-- Where there are too many to look at, organisations take turns, so that those of one hide nobody else's.
select c.org_id, c.environment, c.name, o.open, (extract(epoch from (select holdfast.clock()) - o.oldest) * 1000000)::bigint
from (
    select x.id, x.org_id, x.environment, x.name,
        row_number() over (partition by x.org_id order by x.environment, x.name) as nth
    from holdfast.consumers x
    where x.removed_at is null
    order by nth, x.org_id limit $2::bigint
) c
cross join lateral (
    select count(*) as open, min(q.created_at) as oldest from (
        select d.created_at from holdfast.ack_consumers d
        where d.consumer_id = c.id and num_nulls(d.closed_at) = 1
        order by d.created_at limit $1::bigint
    ) q
) o
order by c.org_id, c.environment, c.name

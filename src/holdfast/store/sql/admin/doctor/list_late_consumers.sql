-- Consumers with open facts: how many up to a limit, seconds since the oldest, and seconds since the consumer went down.
select c.org_id, c.environment, c.name, o.open, extract(epoch from holdfast.clock() - o.oldest)::float8,
    extract(epoch from clock_timestamp() - case when c.way = 'push' then b.down_since
        when b.beat_at + c.ttl * interval '1 second' < clock_timestamp() then b.beat_at + c.ttl * interval '1 second' end)::float8
from holdfast.consumers c
join holdfast.consumer_beats b on b.consumer_id = c.id and b.bucket = c.bucket
cross join lateral (
    select count(*) as open, min(q.created_at) as oldest from (
        select d.created_at from holdfast.ack_consumers d
        where d.consumer_id = c.id and num_nulls(d.closed_at) = 1
        order by d.created_at limit 10001
    ) q
) o
where c.removed_at is null and o.open > 0
order by o.oldest limit 100

-- A page of an organisation's consumers by name, each with how far it is behind: open facts up to a limit, and the oldest.
select c.id, c.environment, c.name, c.way, to_jsonb(c.definitions), to_jsonb(c.states), to_jsonb(c.events), to_jsonb(c.hooks),
    c.takes_transitions, c.takes_hooks,
    c.critical, c.ttl, c.max_attempts, c.in_flight, c.target, c.owner, c.since, num_nulls(c.filled_to) = 0, c.registered_at,
    b.beat_at, case when c.way = 'push' then b.down_since when b.beat_at + c.ttl * interval '1 second' < clock_timestamp()
        then b.beat_at + c.ttl * interval '1 second' end,
    o.open, (extract(epoch from (select holdfast.clock()) - o.oldest) * 1000000)::bigint
from holdfast.consumers c
cross join lateral (
    select x.beat_at, x.down_since from holdfast.consumer_beats x
    where x.consumer_id = c.id and x.bucket = c.bucket
    limit 1
) b
cross join lateral (
    select count(*) as open, min(q.created_at) as oldest from (
        select d.created_at from holdfast.ack_consumers d
        where d.consumer_id = c.id and num_nulls(d.closed_at) = 1
        order by d.created_at limit $4::bigint
    ) q
) o
where c.org_id = $1::text and ($2::text is null or c.environment = $2::text) and c.removed_at is null
    and ($6::text is null or c.name = $6::text) and ($7::text is null or c.owner = $7::text)
    and (c.environment || '/' || c.name) > $3::text
order by c.environment || '/' || c.name limit $5::bigint

-- End a stretch of a removed consumer's open facts as abandoned, but for gates, which are named instead.
-- Their instances may wait for nothing else, so commits have to close them; the answer to a settled one is on its way.
with reach as materialized (
    select max(q.created_at) as upto, count(*) as seen from (
        select d.created_at from holdfast.ack_consumers d
        where d.consumer_id = $1::uuid and num_nulls(d.closed_at) = 1 and d.created_at > $2::timestamptz
        order by d.created_at limit $3::bigint
    ) q
), behind as materialized (
    select x.instance_id, x.bucket, x.created_at, x.ack_id, x.consumer_id, a.is_gate,
        a.is_gate and num_nulls(x.settled_at) = 1 as is_left
    from reach r
    cross join lateral (
        select d.instance_id, d.bucket, d.created_at, d.ack_id, d.consumer_id, d.settled_at
        from holdfast.ack_consumers d
        where d.consumer_id = $1::uuid and num_nulls(d.closed_at) = 1 and d.created_at > $2::timestamptz
            and d.created_at <= r.upto
        order by d.instance_id, d.created_at, d.ack_id  -- as commits lock them
        for update
    ) x
    cross join lateral (
        select f.type is not distinct from 'gate' as is_gate from holdfast.acks f
        where f.instance_id = x.instance_id and f.created_at = x.created_at and f.id = x.ack_id and f.bucket = x.bucket
        limit 1
    ) a
), gone as (
    update holdfast.ack_consumers t set status = 'abandoned', closed_at = (select holdfast.clock()), next_due = null
    from behind d
    where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
        and t.consumer_id = d.consumer_id and t.bucket = d.bucket and not d.is_gate
    returning 1
)
select r.upto, r.seen, (select count(*) from gone), b.instance_id, b.created_at, b.ack_id
from reach r
left join behind b on b.is_left

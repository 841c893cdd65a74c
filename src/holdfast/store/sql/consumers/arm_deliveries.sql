-- Make the first open facts of each instance due that a consumer was given while it was held.
-- A stretch of its open facts is looked at. Only heads are touched, and a head is one for good: nothing older can come any more. So this is safe beside
-- commits, which promote what is behind it, and which it meets in the order of instances.
with reach as materialized (
    select max(q.created_at) as upto, count(*) as seen from (
        select d.created_at from holdfast.ack_consumers d
        where d.consumer_id = $1::uuid and num_nulls(d.closed_at) = 1 and d.created_at > $2::timestamptz
        order by d.created_at limit $3::bigint
    ) q
), behind as materialized (
    select distinct x.instance_id, x.bucket
    from reach r
    cross join lateral (
        select d.instance_id, d.bucket from holdfast.ack_consumers d
        where d.consumer_id = $1::uuid and num_nulls(d.closed_at) = 1 and d.created_at > $2::timestamptz
            and d.created_at <= r.upto
        offset 0
    ) x
), heads as materialized (
    select f.instance_id, f.bucket, f.created_at, f.ack_id, f.consumer_id
    from (select * from behind order by instance_id) b
    cross join lateral (
        select o.seq from holdfast.ack_consumers o
        where o.instance_id = b.instance_id and o.consumer_id = $1::uuid and o.bucket = b.bucket and o.closed_at is null
        order by o.seq, o.ordinal limit 1
    ) h
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id from holdfast.ack_consumers t
        where t.instance_id = b.instance_id and t.consumer_id = $1::uuid and t.bucket = b.bucket and t.closed_at is null
            and t.seq = h.seq and num_nulls(t.next_due) = 1 and t.status = 'pending'
        for update
    ) f
), armed as (
    update holdfast.ack_consumers t set next_due = greatest((select holdfast.clock()), t.starts_at)
    from heads d
    where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
        and t.consumer_id = d.consumer_id and t.bucket = d.bucket
    returning 1
)
select r.upto, r.seen, (select count(*) from armed) from reach r

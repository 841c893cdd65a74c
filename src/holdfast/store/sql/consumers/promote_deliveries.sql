-- Make the next open facts of a consumer and an instance due, now that those before them are closed.
-- The first one is looked for once for each line, in the order of the index, however much is open behind it.
with heads as materialized (
    select u.instance, u.bucket, u.consumer, h.seq
    from unnest($1::uuid[], $2::smallint[], $3::uuid[]) as u(instance, bucket, consumer)
    join holdfast.consumers c on c.id = any(array[u.consumer]) and c.filled_to is null
    cross join lateral (
        select o.seq from holdfast.ack_consumers o
        where o.instance_id = u.instance and o.consumer_id = u.consumer and o.bucket = u.bucket and o.closed_at is null
        order by o.seq, o.ordinal limit 1
    ) h
), first as materialized (
    select f.* from heads h
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id from holdfast.ack_consumers t
        where t.instance_id = h.instance and t.consumer_id = h.consumer and t.bucket = h.bucket and t.closed_at is null
            and t.seq = h.seq and t.next_due is null and t.status = 'pending'
        offset 0
    ) f
)
update holdfast.ack_consumers t set next_due = greatest($4::timestamptz, t.starts_at)
from first d
where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
    and t.consumer_id = d.consumer_id and t.bucket = d.bucket

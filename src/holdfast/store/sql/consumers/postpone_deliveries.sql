-- Send facts again at another moment, because their consumers said so; never before a fact may be sent at all.
with d as materialized (
    select x.instance_id, x.bucket, x.created_at, x.ack_id, x.consumer_id, u.due, u.message
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::uuid[], $6::timestamptz[], $7::text[])
        as u(instance, bucket, at, ack, consumer, due, message)
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id from holdfast.ack_consumers t
        where t.instance_id = u.instance and t.created_at = u.at and t.ack_id = u.ack and t.consumer_id = u.consumer
            and t.bucket = u.bucket and t.status in ('pending', 'delivered') and num_nonnulls(t.closed_at) = 0 and num_nonnulls(t.next_due) = 1
        limit 1
        for update
    ) x
)
update holdfast.ack_consumers t set status = 'pending', message = d.message,
    next_due = greatest(least(greatest(d.due, t.starts_at), t.ends_at), (select holdfast.clock()))
from d
where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
    and t.consumer_id = d.consumer_id and t.bucket = d.bucket
returning t.ack_id, t.consumer_id, t.next_due

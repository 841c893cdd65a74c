-- Note that consumers have received facts. A late word changes nothing, and a row that is being closed is left alone.
with d as materialized (
    select x.instance_id, x.bucket, x.created_at, x.ack_id, x.consumer_id
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::uuid[]) as u(instance, bucket, at, ack, consumer)
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id from holdfast.ack_consumers t
        where t.instance_id = u.instance and t.created_at = u.at and t.ack_id = u.ack and t.consumer_id = u.consumer
            and t.bucket = u.bucket and t.status = 'pending' and num_nonnulls(t.closed_at) = 0 and num_nonnulls(t.next_due) = 1
        limit 1
        for update skip locked
    ) x
)
update holdfast.ack_consumers t set status = 'delivered', delivered_at = (select holdfast.clock()),
    next_due = least((select holdfast.clock()) + $6::bigint * interval '1 microsecond',
        case when t.ends_at > (select holdfast.clock()) then t.ends_at end)
from d
where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
    and t.consumer_id = d.consumer_id and t.bucket = d.bucket
returning t.ack_id, t.consumer_id

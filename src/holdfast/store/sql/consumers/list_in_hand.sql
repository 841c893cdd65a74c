-- Which of these deliveries were sent and have no answer. One that comes again later than `resend` from now is put off.
select x.ack_id, x.consumer_id
from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::uuid[]) as u(instance, bucket, at, ack, consumer)
cross join lateral (
    select t.ack_id, t.consumer_id from holdfast.ack_consumers t
    where t.instance_id = u.instance and t.created_at = u.at and t.ack_id = u.ack and t.consumer_id = u.consumer
        and t.bucket = u.bucket and t.status in ('pending', 'delivered') and num_nonnulls(t.closed_at, t.settled_at) = 0
        and t.next_due <= (select holdfast.clock()) + $6::bigint * interval '1 microsecond'
    limit 1
) x

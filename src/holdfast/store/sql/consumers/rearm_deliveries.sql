-- Try the deliveries again that failed and halt their instance; each has as many attempts more as its consumer allows.
update holdfast.ack_consumers t set status = 'pending', next_due = greatest($3::timestamptz, t.starts_at),
    most = t.attempts + c.max_attempts
from unnest($1::uuid[], $2::smallint[]) as u(instance, bucket)
cross join lateral (
    select o.created_at, o.ack_id, o.consumer_id from holdfast.ack_consumers o
    where o.instance_id = u.instance and o.bucket = u.bucket and o.closed_at is null and o.status = 'failed'
    offset 0
) f
join holdfast.consumers c on c.id = any(array[f.consumer_id])
where t.instance_id = any(array[u.instance]) and t.created_at = f.created_at and t.ack_id = f.ack_id
    and t.consumer_id = f.consumer_id and t.bucket = u.bucket

-- Make the next open facts of a consumer and an instance due, now that those before them are closed.
update holdfast.ack_consumers t set next_due = greatest($4::timestamptz, t.starts_at)
from unnest($1::uuid[], $2::smallint[], $3::uuid[]) as u(instance, bucket, consumer)
join holdfast.consumers c on c.id = any(array[u.consumer]) and c.filled_to is null
cross join lateral (
    select o.seq from holdfast.ack_consumers o
    where o.instance_id = any(array[u.instance]) and o.consumer_id = u.consumer and o.bucket = u.bucket and o.closed_at is null
    order by o.seq, o.ordinal limit 1
) h
where t.instance_id = any(array[u.instance]) and t.consumer_id = u.consumer and t.bucket = u.bucket and t.closed_at is null
    and t.seq = h.seq and t.next_due is null and t.status = 'pending'

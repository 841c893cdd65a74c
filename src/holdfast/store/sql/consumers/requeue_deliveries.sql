-- Open failed deliveries again, each with as many attempts more as its consumer allows. What is due behind one of them waits.
-- None is due yet: the next statement makes the first open facts of their lines due.
with again as (
    update holdfast.ack_consumers t set status = 'pending', next_due = null, settled_at = null, closed_at = null,
        verdict = null, most = t.attempts + c.max_attempts
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::uuid[])
        as u(instance, bucket, at, ack, consumer)
    join holdfast.consumers c on c.id = any(array[u.consumer])
    where t.instance_id = any(array[u.instance]) and t.created_at = u.at and t.ack_id = u.ack and t.consumer_id = u.consumer
        and t.bucket = u.bucket and t.status = 'failed'
    returning t.instance_id, t.bucket, t.consumer_id, t.seq
), behind as materialized (
    select x.instance_id, x.bucket, x.created_at, x.ack_id, x.consumer_id
    from (
        select a.instance_id, a.bucket, a.consumer_id, min(a.seq) as seq from again a
        group by a.instance_id, a.bucket, a.consumer_id
    ) h
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id from holdfast.ack_consumers t
        where t.instance_id = h.instance_id and t.consumer_id = h.consumer_id and t.bucket = h.bucket
            and t.closed_at is null and t.seq > h.seq and num_nulls(t.next_due) = 0
        offset 0
    ) x
), held as (
    update holdfast.ack_consumers t set status = 'pending', next_due = null
    from behind d
    where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
        and t.consumer_id = d.consumer_id and t.bucket = d.bucket
)
select holdfast.expect('requeue_deliveries', count(*), $6::bigint) from again

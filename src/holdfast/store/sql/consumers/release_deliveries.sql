-- End the failed deliveries of instances that are over: nothing resumes these, and what comes behind them is to be sent.
with halted as materialized (
    select o.instance_id, o.bucket, o.created_at, o.ack_id, o.consumer_id
    from unnest($1::uuid[], $2::smallint[]) as u(instance, bucket)
    cross join lateral (
        select t.* from holdfast.ack_consumers t
        where t.instance_id = u.instance and t.bucket = u.bucket and t.closed_at is null and t.status = 'failed'
        offset 0
    ) o
), ended as (
    update holdfast.ack_consumers t set closed_at = $3::timestamptz
    from halted h
    where t.instance_id = any(array[h.instance_id]) and t.created_at = h.created_at and t.ack_id = h.ack_id
        and t.consumer_id = h.consumer_id and t.bucket = h.bucket
), next as materialized (
    select n.* from (select distinct h.instance_id, h.bucket, h.consumer_id from halted h) l
    join holdfast.consumers c on c.id = any(array[l.consumer_id]) and c.filled_to is null
    cross join lateral (
        select o.seq from holdfast.ack_consumers o
        where o.instance_id = l.instance_id and o.consumer_id = l.consumer_id and o.bucket = l.bucket
            and o.closed_at is null and o.status <> 'failed'
        order by o.seq, o.ordinal limit 1
    ) h
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id from holdfast.ack_consumers t
        where t.instance_id = l.instance_id and t.consumer_id = l.consumer_id and t.bucket = l.bucket
            and t.closed_at is null and t.seq = h.seq and t.next_due is null and t.status = 'pending'
        offset 0
    ) n
)
update holdfast.ack_consumers t set next_due = greatest($3::timestamptz, t.starts_at)
from next d
where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
    and t.consumer_id = d.consumer_id and t.bucket = d.bucket

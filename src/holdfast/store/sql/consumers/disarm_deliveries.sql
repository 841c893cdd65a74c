-- Take the due times of a consumer that is held, a page of them, so that nothing is sent before what comes again.
with d as materialized (
    select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id from holdfast.ack_consumers t
    where t.consumer_id = $1::uuid and t.next_due is not null
    order by t.next_due limit $2::bigint
    for update skip locked
)
update holdfast.ack_consumers t set next_due = null, status = 'pending'
from d
where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
    and t.consumer_id = d.consumer_id and t.bucket = d.bucket
returning 1

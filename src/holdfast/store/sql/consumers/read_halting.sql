-- Failed deliveries that halt these instances, under the locks of the instances.
select u.instance, o.ack_id, o.consumer_id
from unnest($1::uuid[], $2::smallint[]) as u(instance, bucket)
cross join lateral (
    select t.ack_id, t.consumer_id from holdfast.ack_consumers t
    where t.instance_id = u.instance and t.bucket = u.bucket and t.closed_at is null and t.status = 'failed'
    offset 0
) o

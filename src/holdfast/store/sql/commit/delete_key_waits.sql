-- Waits for keyed events that are over; found by their instance, because one key may have any number of waits.
delete from holdfast.key_waits t
using unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::smallint[]) as u(org, event, key, instance, token, bucket)
where t.instance_id = any(array[u.instance]) and t.org_id is not distinct from u.org and t.event is not distinct from u.event
    and t.key is not distinct from u.key and t.token is not distinct from u.token and t.bucket is not distinct from u.bucket

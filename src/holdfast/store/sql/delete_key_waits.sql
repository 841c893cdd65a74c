-- Waits for keyed events that are over.
delete from holdfast.key_waits t
using unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::smallint[]) as u(org, event, key, instance, token, bucket)
where t.org_id = any(array[u.org]) and t.event = u.event and t.key = u.key and t.instance_id = any(array[u.instance])
    and t.token = u.token and t.bucket = u.bucket

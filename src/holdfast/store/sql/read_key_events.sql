-- Keyed events that came before these waits, oldest first.
select u.instance, u.token, t.id, t.event, t.payload, t.actor
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[])
    as u(instance, token, org, event, key, bucket)
cross join lateral (
    select e.* from holdfast.key_events e
    where e.org_id = any(array[u.org]) and e.event = u.event and e.key = u.key and e.bucket = u.bucket
        and e.expires_at - (select holdfast.clock()) > interval '0'
    order by e.created_at, e.id limit 1
) t

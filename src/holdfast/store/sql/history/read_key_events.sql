-- Keyed events that came before these waits and were not taken there yet, oldest first, a bounded number for each.
select u.instance, u.token, t.id, t.event, t.payload, t.actor, t.created_at
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::smallint[])
    as u(instance, token, org, event, key, bucket, node, home)
cross join lateral (
    select e.* from holdfast.key_events e
    where e.org_id = any(array[u.org]) and e.event = u.event and e.key = u.key and e.bucket = u.bucket
        and e.expires_at - (select holdfast.clock()) > interval '0'
        and not exists (
            select from holdfast.outbox_receipts r
            where r.instance_id = any(array[u.instance]) and r.source = 'event' and r.key = e.id::text || ':' || u.node
                and r.bucket = u.home
        )
    order by e.created_at, e.id limit $9::bigint
) t

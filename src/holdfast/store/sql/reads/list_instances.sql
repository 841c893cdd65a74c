-- A page of instances, newest first, by flow: each flow is one short index scan, whatever its history.
with edge as materialized (  -- the end of the last page; should that instance be gone, its id still says when it was made
    select coalesce(
        (select e.created_at from holdfast.instances e
            where e.id = $3::uuid and e.bucket = get_byte(uuid_send($3::uuid), 15)),
        to_timestamp(('x' || translate(left($3::uuid::text, 13), '-', ''))::bit(48)::bigint / 1000.0),
        'infinity') as created_at
)
select t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes
from edge
cross join (
    select distinct d.name from holdfast.definitions d
    where d.org_id in ($1::text, '_system') and ($2::text is null or d.name = $2::text)
) f
cross join lateral (
    select i.* from holdfast.instances i
    where i.org_id = $1::text and i.flow = f.name and (i.created_at, i.id) < (edge.created_at, $3::uuid)
        and i.created_at >= $6::timestamptz and i.created_at < $7::timestamptz
        and ($5::text is null or i.status = $5::text)
    order by i.created_at desc, i.id desc limit $4::bigint
) t
order by t.created_at desc, t.id desc limit $4::bigint

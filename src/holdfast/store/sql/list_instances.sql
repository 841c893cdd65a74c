-- A page of instances, newest first, by flow: each flow is one short index scan, whatever its history.
select t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes
from (
    select distinct d.name from holdfast.definitions d
    where d.org_id in ($1::text, '_system') and ($2::text is null or d.name = $2::text)
) f
cross join lateral (
    select i.* from holdfast.instances i
    where i.org_id = $1::text and i.flow = f.name and i.id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        and ($5::text is null or i.status = $5::text)
    order by i.id desc limit $4::bigint
) t
order by t.id desc limit $4::bigint

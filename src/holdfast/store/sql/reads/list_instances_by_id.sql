-- Instances of one organisation by their ids.
select t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes
from unnest($1::uuid[], $2::smallint[]) as u(id, bucket)
join holdfast.instances t on t.id = any(array[u.id]) and t.bucket = u.bucket
where t.org_id = $3::text

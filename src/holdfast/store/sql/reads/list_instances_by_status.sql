-- A page of instances in one status that is not `completed`, newest first, on the index of unfinished business.
select t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes
from holdfast.instances t
where t.org_id = $1::text and t.status = $5::text and t.status <> 'completed' and ($2::text is null or t.flow = $2::text)
    and t.id < case when $3::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $3::uuid end
order by t.id desc limit $4::bigint

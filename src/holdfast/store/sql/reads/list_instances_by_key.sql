-- The instances that were started with an idempotency key: at most one of each flow.
select t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes
from (
    select i.* from holdfast.instances i
    where i.idempotency_key = $5::text and i.org_id is not distinct from $1::text
    offset 0
) t
where ($2::text is null or t.flow = $2::text) and ($6::text is null or t.status = $6::text)
    and ($7::text is null or t.business_key = $7::text)
    and t.id < case when $3::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $3::uuid end
order by t.id desc limit $4::bigint

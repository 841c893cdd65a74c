-- One instance as its owner sees it, with the definition it is pinned to and where its tokens stand.
select t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes, t.definition_id, t.state
from holdfast.instances t where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text

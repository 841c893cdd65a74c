-- One instance as the caller's transaction sees it, as JSON so that no adapter of the caller has a say.
select jsonb_build_object(
    'id', t.id, 'org', t.org_id, 'flow', t.flow, 'flow_version', t.flow_version, 'status', t.status, 'reason', t.reason,
    'version', t.version, 'data', t.data, 'input', t.input, 'key', t.idempotency_key, 'business_key', t.business_key,
    'parent_id', t.parent_id, 'waiting_for', t.waiting_kind, 'waiting_until', t.waiting_until, 'error', t.last_error,
    'created_by', t.created_by, 'created_at', t.created_at, 'updated_at', t.updated_at,
    'completed_at', t.completed_at, 'attributes', t.attributes
)::text
from holdfast.instances t where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text

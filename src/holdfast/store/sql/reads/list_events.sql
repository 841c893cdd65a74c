-- The audit trail of one instance. Lines beside the decisions of a version are ordered by their moments.
select t.version, t.ordinal, t.type, t.node, t.token, t.actor, t.detail, t.created_at
from holdfast.events t where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
order by t.version, t.created_at, t.ordinal

-- Every step of an instance so far, as a rollback sees them.
select t.id, t.created_at, t.node, t.path, t.hop, t.kind, t.run, t.status, t.opened_version, t.opened_ordinal, t.fence,
    t.input, t.output, t.detail
from holdfast.steps t
where t.instance_id = $1::uuid and t.bucket = $2::smallint

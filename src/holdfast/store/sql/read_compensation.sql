-- The row of one compensation, for another try.
select t.node, t.path, t.hop, t.id, t.created_at, t.fence, t.run, t.detail, t.input
from holdfast.steps t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.created_at = $3::timestamptz and t.id = $4::uuid

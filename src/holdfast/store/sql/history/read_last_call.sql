-- What an open step was called with, and how its last call ended.
select t.input, t.error
from holdfast.steps t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.created_at = $3::timestamptz and t.id = $4::uuid

-- What one instance waits for that will not come.
select holdfast.missing_movers(t.id, t.bucket, t.version, t.state)
from holdfast.instances t where t.id = $1::uuid and t.bucket = $2::smallint

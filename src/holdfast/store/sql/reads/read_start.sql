-- What an instance was started with.
select t.input, t.idempotency_key, t.business_key, t.attributes
from holdfast.instances t where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text

-- The row of one compensation, for another try: behind every call that its path has seen.
select t.node, t.path, t.hop, t.id, t.created_at,
    (select max(s.fence) from holdfast.steps s
        where s.instance_id = t.instance_id and s.bucket = t.bucket and s.path = t.path),
    t.run, t.detail, t.input
from holdfast.steps t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.created_at = $3::timestamptz and t.id = $4::uuid

-- Give claimed effects back undelivered: the attempt they were charged with is taken back.
update holdfast.effects t set status = 'pending', worker = null, fence = t.fence + 1, attempts = t.attempts - 1,
    deadline_at = null
from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::bigint[])
    as u(instance, bucket, created_at, id, fence)
where t.instance_id = any(array[u.instance]) and t.created_at = u.created_at and t.id = u.id and t.bucket = u.bucket
    and t.fence = u.fence and t.worker is not distinct from $6::uuid

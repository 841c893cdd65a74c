-- Give claimed effects back to whoever has what this worker lacks: the attempt is not counted, the reason is kept.
update holdfast.effects t set status = 'pending', worker = null, fence = t.fence + 1, attempts = t.attempts - 1,
    deadline_at = null, error = u.error
from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::bigint[], $6::jsonb[])
    as u(instance, bucket, created_at, id, fence, error)
where t.instance_id = any(array[u.instance]) and t.created_at = u.created_at and t.id = u.id and t.bucket = u.bucket
    and t.fence = u.fence and t.worker is not distinct from $7::uuid

-- A signal could not be applied: remember how often and why, in a commit of its own.
update holdfast.signals t set attempts = least(t.attempts, 9998) + 1, error = u.error, ripe_at = (select holdfast.clock())
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[]) as u(instance, bucket, id, error)
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.id = u.id
returning t.instance_id, t.id, t.attempts

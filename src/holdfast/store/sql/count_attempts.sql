-- A signal could not be applied: remember how often and why, in a commit of its own. It goes behind the others.
update holdfast.signals t set attempts = t.attempts + u.tried, error = u.error, ripe_at = (select holdfast.clock())
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::int[]) as u(instance, bucket, id, error, tried)
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.id = u.id
returning t.instance_id, t.id, t.attempts

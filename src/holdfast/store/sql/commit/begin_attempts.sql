-- Signals are about to be decided upon by somebody who may not live to count it. They keep their place in the queue.
update holdfast.signals t set attempts = t.attempts + 1
from unnest($1::uuid[], $2::smallint[], $3::uuid[]) as u(instance, bucket, id)
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.id = u.id

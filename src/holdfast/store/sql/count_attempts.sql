-- A signal could not be applied: remember how often and why, in a commit of its own. It keeps its place before younger
-- ones of its instance. Who has the instance now may be applying it: nothing is counted then, and it is tried again.
with held as materialized (
    select u.* from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::int[])
        as u(instance, bucket, id, error, tried)
    join holdfast.instances i on i.id = any(array[u.instance]) and i.bucket = u.bucket
    for no key update of i skip locked
)
update holdfast.signals t set attempts = t.attempts + h.tried, error = h.error
from held h
where t.instance_id = any(array[h.instance]) and t.bucket = h.bucket and t.id = h.id
returning t.instance_id, t.id, t.attempts

-- The ready signals of locked instances in the order they fold, a bounded number of each.
-- Whoever changes a signal holds its instance, so they need no locks of their own: one that was skipped would be applied
-- behind a younger one.
select s.instance_id, s.id, s.kind, s.payload, s.attempts, s.trace
from unnest($1::uuid[], $2::smallint[]) as u(id, bucket)
cross join lateral (
    select * from holdfast.signals t
    where t.instance_id = any(array[u.id]) and t.bucket = u.bucket
    order by row(t.ripe_at, t.id)
    limit $3::bigint
) s

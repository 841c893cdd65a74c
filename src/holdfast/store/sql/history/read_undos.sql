-- The compensations that these instances have still to run, in the order of their plans, with inputs that are not too large.
-- All of a plan have one moment, and little comes behind it. What comes back to a path goes by fences behind all that the path
-- has seen, so the ones that are done are looked at, too.
select c.instance_id, c.node, c.path, c.hop, c.id, c.created_at, c.fence, c.run, c.detail, c.input
from unnest($1::uuid[], $2::smallint[], $3::timestamptz[]) as u(instance, bucket, planned_at)
cross join lateral (
    select t.instance_id, t.node, t.path, t.hop, t.id, t.created_at, max(t.fence) over (partition by t.path) as fence, t.run,
        t.detail, case when pg_column_size(t.input) <= $4::int then t.input end as input, t.closed_at, t.opened_version,
        t.opened_ordinal
    from holdfast.steps t
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at >= u.planned_at
        and t.kind = 'compensate'
) c
where c.closed_at is null
order by c.instance_id, c.opened_version, c.opened_ordinal

-- Give claimed work back unrun: the calls it was charged with are taken back with it.
with w as (
    update holdfast.work t set worker = null, queue = t.target, fence = t.fence + 1, deadline_at = null,
        ready_at = (select holdfast.clock())
    from (
        select * from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[]) as x(instance, bucket, path, fence)
        order by x.instance, x.path
    ) u
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.fence
        and t.worker is not distinct from $5::uuid
    returning t.instance_id, t.bucket, t.step_id, t.step_created_at
)
update holdfast.steps s set calls = s.calls - 1
from w
where s.instance_id = any(array[w.instance_id]) and s.created_at = w.step_created_at and s.id = w.step_id and s.bucket = w.bucket

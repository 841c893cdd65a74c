-- Work leased to this worker that it does not know of (a commit whose answer was lost): free again, its call taken back.
with strays as (
    update holdfast.work t set worker = null, queue = t.target, fence = t.fence + 1, deadline_at = null
    where t.worker = $4::uuid and not exists (
        select from unnest($1::uuid[], $2::text[], $3::bigint[]) as u(instance, path, fence)
        where t.instance_id = any(array[u.instance]) and u.path = t.path and u.fence = t.fence)
    returning t.instance_id, t.bucket, t.step_id, t.step_created_at
)
update holdfast.steps s set calls = s.calls - 1
from strays w
where s.instance_id = any(array[w.instance_id]) and s.created_at = w.step_created_at and s.id = w.step_id and s.bucket = w.bucket

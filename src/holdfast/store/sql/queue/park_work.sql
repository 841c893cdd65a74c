-- Give claimed work back unrun until a moment has come: it is in no queue till then, and its call does not count.
-- What has been stopped meanwhile does not wait.
with w as (
    update holdfast.work t set worker = null, fence = t.fence + 1,
        queue = case when t.target in ('told to stop', 'not to start') then t.target else '' end,
        deadline_at = case when t.target not in ('told to stop', 'not to start')
            then (select holdfast.clock()) + u.seconds * interval '1 second' end
    from (
        select * from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::real[])
            as x(instance, bucket, path, fence, seconds)
        order by x.instance, x.path
    ) u
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.fence
        and t.worker is not distinct from $6::uuid
    returning t.instance_id, t.bucket, t.step_id, t.step_created_at
)
update holdfast.steps s set calls = s.calls - 1
from w
where s.instance_id = any(array[w.instance_id]) and s.created_at = w.step_created_at and s.id = w.step_id and s.bucket = w.bucket

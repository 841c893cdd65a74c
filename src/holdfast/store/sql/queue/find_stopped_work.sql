-- Which of these calls are not wanted any more, or not now: their row is gone, is another's, or says so in the last column.
select u.instance, u.path, u.fence, t.target
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[]) as u(instance, bucket, path, fence)
left join holdfast.work t on t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path
    and t.fence = u.fence and t.worker is not distinct from $5::uuid
where t.bucket is null or t.target in ('told to stop', 'not to start', '')

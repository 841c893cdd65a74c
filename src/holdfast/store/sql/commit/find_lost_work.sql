-- Which of these results come from a lease we no longer hold?
select u.instance, u.path, u.fence
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[]) as u(instance, bucket, path, fence)
left join holdfast.work t on t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path
    and t.fence = u.fence and t.worker is not distinct from $5::uuid
where t.bucket is null

-- The token has no more work here; only the holder of the fence may say so.
with w as (
    delete from holdfast.work t using unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[]) as u(instance, bucket, path, fence)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.fence
        and t.worker is not distinct from $5::uuid
    returning 1
)
select holdfast.expect('delete_work', count(*), $6::bigint) from w

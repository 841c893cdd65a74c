-- A step is called, or called again: count it and keep the error of the last call.
with w as (
    update holdfast.steps t set status = 'running', calls = u.calls, fence = u.fence, error = u.error
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::int[], $6::bigint[], $7::jsonb[])
        as u(instance, bucket, at, id, calls, fence, error)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
        and t.closed_at is null
    returning 1
)
select holdfast.expect('retry_steps', count(*), $8::bigint) from w

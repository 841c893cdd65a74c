-- Steps that were closed before are being taken back, or have been.
with w as (
    update holdfast.steps t set status = u.status
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::text[])
        as u(instance, bucket, at, id, status)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
    returning 1
)
select holdfast.expect('move_steps', count(*), $6::bigint) from w

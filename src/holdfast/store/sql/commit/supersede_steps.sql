-- A failed step runs again as a new row; the old one says so.
with w as (
    update holdfast.steps t set status = 'superseded'
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[]) as u(instance, bucket, at, id)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
    returning 1
)
select holdfast.expect('supersede_steps', count(*), $5::bigint) from w

-- The call of these steps was counted and is not made after all: they were stopped before their turn, or had none left.
with w as (
    update holdfast.steps t set calls = t.calls - 1
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[]) as u(instance, bucket, at, id)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
    returning 1
)
select holdfast.expect('uncount_calls', count(*), $5::bigint) from w

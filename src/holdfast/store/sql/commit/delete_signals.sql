-- Consume signals in the commit that applied them.
with w as (
    delete from holdfast.signals t using unnest($1::uuid[], $2::smallint[], $3::uuid[]) as u(instance, bucket, id)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.id = u.id
    returning 1
)
select holdfast.expect('delete_signals', count(*), $4::bigint) from w

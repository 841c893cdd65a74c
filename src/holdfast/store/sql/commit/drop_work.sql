-- The token is gone: end its work whoever holds it; a late result will find no row and be refused.
delete from holdfast.work t using (
    select * from unnest($1::uuid[], $2::smallint[], $3::text[]) as x(instance, bucket, path) order by x.instance, x.path
) u
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path

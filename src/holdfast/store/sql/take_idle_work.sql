-- Take back work of locked instances that nobody has claimed yet.
delete from holdfast.work t using unnest($1::uuid[], $2::smallint[]) as u(instance, bucket)
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and num_nulls(t.worker) = 1
returning t.instance_id, t.path

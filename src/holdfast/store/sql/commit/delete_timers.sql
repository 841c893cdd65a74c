-- Tidy up timers nobody waits for any more; a missed one would be ignored as stale.
delete from holdfast.timers t using unnest($1::uuid[], $2::smallint[], $3::uuid[]) as u(instance, bucket, id)
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.id = u.id

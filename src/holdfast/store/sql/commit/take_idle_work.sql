-- Take back the work of these paths of locked instances that nobody has begun.
-- What was begun before its worker was lost is answered for in the queue, and so is what was stopped before: somebody
-- waits to hear how far it came. A dead letter has been given up on already.
delete from holdfast.work t
using unnest($1::uuid[], $2::smallint[], $3::text[]) as u(instance, bucket, path), holdfast.steps s
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and num_nulls(t.worker) = 1
    and t.target not in ('told to stop', 'not to start')
    and s.instance_id = any(array[u.instance]) and s.created_at = t.step_created_at and s.id = t.step_id
    and s.bucket = t.bucket and (s.calls = 0 or t.queue = 'dead letter')
returning t.instance_id, t.path

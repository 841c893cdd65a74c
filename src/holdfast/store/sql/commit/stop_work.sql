-- Nothing starts on these paths any more: who runs there is awaited, and a row nobody holds is only answered for.
-- Work of a suspended instance waits in the queue without a name; a resume says which one it comes back to.
update holdfast.work t set target = u.queue,
    queue = case when num_nulls(t.worker) = 1 and t.queue <> 'dead letter' then u.queue else t.queue end,
    deadline_at = case when num_nulls(t.worker) = 0 then t.deadline_at end, ready_at = (select holdfast.clock())
from (
    select * from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[]) as x(instance, bucket, path, queue)
    order by x.instance, x.path
) u
where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path

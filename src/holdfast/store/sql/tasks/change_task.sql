-- Put a task into other hands, if nobody else changed it meanwhile; no row: somebody did.
with w as (
    update holdfast.tasks t set status = $5::text, assignee = $6::text, version = t.version + 1, updated_at = greatest(holdfast.clock(), t.updated_at)
    where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text and t.version = $4::int
        and num_nulls(t.closed_at) = 1
    returning t.id, t.version, t.bucket, t.org_id, t.instance_id, t.assignee, t.updated_at
)
insert into holdfast.task_events (task_id, ordinal, bucket, org_id, instance_id, type, actor, assignee, reason, created_at)
select w.id, w.version, w.bucket, w.org_id, w.instance_id, $7::text, $8::text, w.assignee, $9::text, w.updated_at from w
returning task_id

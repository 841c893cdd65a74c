-- Open human tasks follow their steps, which a migration has given other names.
with allowed as materialized (
    select set_config('holdfast.migrating', 'on', true) as migrating
), w as (
    update holdfast.tasks t set node = u.now, version = t.version + 1, updated_at = greatest($7::timestamptz, t.updated_at)
    from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[])
        as u(instance, bucket, id, was, now, actor), allowed
    where t.id = any(array[u.id]) and t.bucket = u.bucket and num_nulls(t.closed_at) = 1 and allowed.migrating = 'on'
    returning t.id, t.version, t.bucket, t.org_id, t.instance_id, t.assignee, u.was, u.now, u.actor, t.updated_at
), e as (
    insert into holdfast.task_events (task_id, ordinal, bucket, org_id, instance_id, type, actor, assignee, detail, created_at)
    select w.id, w.version, w.bucket, w.org_id, w.instance_id, 'renamed', w.actor, w.assignee,
        jsonb_build_object('from', w.was, 'to', w.now), w.updated_at
    from w
)
select holdfast.expect('rename_tasks', count(*), $8::bigint), set_config('holdfast.migrating', 'off', true) from w

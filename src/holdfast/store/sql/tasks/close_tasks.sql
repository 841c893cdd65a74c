-- End human tasks: decided, cancelled or expired; they leave the inboxes and keep a last line of history.
with u as materialized (
    select * from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::jsonb[],
        $9::text[])
        as u(instance, bucket, id, status, decision, reason, comment, data, actor)
), w as (
    update holdfast.tasks t set status = u.status, decision = u.decision, reason = u.reason, comment = u.comment,
        data = u.data, decided_by = case when u.decision is not null then u.actor end, version = t.version + 1,
        updated_at = greatest($10::timestamptz, t.updated_at), closed_at = greatest($10::timestamptz, t.updated_at)
    from u
    where t.id = any(array[u.id]) and t.bucket = u.bucket and num_nulls(t.closed_at) = 1
    returning t.id, t.version, t.bucket, t.org_id, t.instance_id, t.status, t.assignee, u.actor, u.decision, u.comment,
        u.reason, t.updated_at
), r as (
    delete from holdfast.task_roles t using u where t.task_id = any(array[u.id]) and t.bucket = u.bucket
), e as (
    insert into holdfast.task_events (task_id, ordinal, bucket, org_id, instance_id, type, actor, assignee, reason, detail,
        created_at)
    select w.id, w.version, w.bucket, w.org_id, w.instance_id, w.status, w.actor, w.assignee, w.reason,
        case when w.decision is not null then jsonb_build_object('decision', w.decision, 'comment', w.comment) end,
        w.updated_at
    from w
)
select holdfast.expect('close_tasks', count(*), $11::bigint) from w

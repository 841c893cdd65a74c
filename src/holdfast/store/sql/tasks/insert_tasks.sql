-- Open human tasks, in nobody's hands or assigned, each with its first history and a row per role for the inboxes.
with u as (
    select * from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[],
        $9::jsonb[], $10::smallint[], $11::timestamptz[], $12::jsonb[], $13::jsonb[], $14::text[], $15::text[])
        as u(instance, bucket, id, org, step, flow, node, token, roles, rank, due, form, payload, actor, assignee)
), t as (
    insert into holdfast.tasks (id, bucket, org_id, instance_id, step_id, step_created_at, flow, node, token, status, roles,
        assignee, rank, due_at, form, payload, version, created_by, created_at, updated_at)
    select u.id, u.bucket, u.org, u.instance, u.step, $16::timestamptz, u.flow, u.node, u.token,
        case when u.assignee is null then 'open' else 'assigned' end, u.roles, u.assignee, u.rank, u.due, u.form, u.payload,
        case when u.assignee is null then 1 else 2 end, u.actor, $16::timestamptz, $16::timestamptz
    from u
), r as (
    insert into holdfast.task_roles (task_id, role, bucket, org_id, rank, due_at)
    select u.id, e.role, u.bucket, u.org, u.rank, u.due
    from u cross join lateral jsonb_array_elements_text(u.roles) as e(role)
)
insert into holdfast.task_events (task_id, ordinal, bucket, org_id, instance_id, type, actor, assignee, created_at)
select u.id, 1, u.bucket, u.org, u.instance, 'created', u.actor, null, $16::timestamptz from u
union all
select u.id, 2, u.bucket, u.org, u.instance, 'assigned', u.actor, u.assignee, $16::timestamptz from u
where u.assignee is not null

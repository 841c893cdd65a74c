-- A page of the open tasks meant for one role, most urgent first, in anybody's hands or in one person's.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at
from holdfast.task_roles r
cross join lateral (
    select i.* from holdfast.tasks i
    where i.id = r.task_id and i.bucket = r.bucket and i.org_id = $1::text
        and ($2::text is null or i.status = $2::text) and ($8::text is null or i.assignee = $8::text)
    limit 1
) t
where r.org_id = $1::text and r.role = $7::text and (r.rank, r.due_at, r.task_id) > ($3::smallint, $4::timestamptz, $5::uuid)
order by r.rank, r.due_at, r.task_id limit $6::bigint

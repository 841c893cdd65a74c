-- Of each of these instances the tasks that are open, and those that were one person's.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at
from unnest($1::uuid[]) as u(id)
cross join lateral (
    select o.* from holdfast.tasks o
    where o.instance_id = any(array[u.id]) and o.org_id = $2::text
        and (o.closed_at is null or o.decided_by = $3::text or o.assignee = $3::text)
    order by o.closed_at desc nulls first, o.id
    limit $4::bigint
) t

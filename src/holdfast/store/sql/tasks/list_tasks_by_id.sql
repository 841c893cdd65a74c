-- Tasks of one organisation by their ids.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at
from unnest($1::uuid[], $2::smallint[]) as u(id, bucket)
join holdfast.tasks t on t.id = any(array[u.id]) and t.bucket = u.bucket
where t.org_id = $3::text

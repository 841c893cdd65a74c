-- One task as its organisation sees it.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at
from holdfast.tasks t where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text

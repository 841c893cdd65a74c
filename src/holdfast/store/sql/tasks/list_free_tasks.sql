-- A page of the open tasks that name neither a person nor a role, most urgent first, with what says who may act on them.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at, i.definition_id, i.created_by
from holdfast.tasks t
cross join lateral (
    select i.definition_id, i.created_by from holdfast.instances i
    where i.id = t.instance_id and i.bucket = t.bucket and i.org_id = $1::text
    limit 1
) i
where t.org_id = $1::text and t.closed_at is null and t.assignee is null and t.roles = '[]'
    and (t.rank, t.due_at, t.id) > ($2::smallint, $3::timestamptz, $4::uuid)
order by t.rank, t.due_at, t.id limit $5::bigint

-- A page of an organisation's open tasks, most urgent first.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at
from holdfast.tasks t
where t.org_id = $1::text and t.closed_at is null and ($2::text is null or t.status = $2::text)
    and (t.rank, t.due_at, t.id) > ($3::smallint, $4::timestamptz, $5::uuid)
order by t.rank, t.due_at, t.id limit $6::bigint

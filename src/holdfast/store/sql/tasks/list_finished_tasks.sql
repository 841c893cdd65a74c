-- A page of tasks that ended in one way, the newest first.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at
from holdfast.tasks t
where t.org_id = $1::text and t.status = $2::text and t.closed_at is not null
    and t.id < case when $3::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $3::uuid end
order by t.id desc limit $4::bigint

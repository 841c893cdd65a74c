-- The tasks of one instance in the order they were opened, those that are over included.
select t.id, t.org_id, t.instance_id, t.step_id, t.flow, t.node, t.token, t.status, t.roles, t.assignee, t.rank, t.due_at,
    t.form, t.payload, t.decision, t.comment, t.data, t.decided_by, t.reason, t.version, t.created_at, t.updated_at,
    t.closed_at
from holdfast.tasks t
where t.instance_id = $1::uuid and t.org_id = $2::text and ($3::text is null or t.status = $3::text)
    and t.id > case when $4::uuid is null then '00000000-0000-0000-0000-000000000000' else $4::uuid end
    and ($6::text is null or jsonb_exists(t.roles, $6::text)) and ($7::text is null or t.assignee = $7::text)
order by t.id limit $5::bigint

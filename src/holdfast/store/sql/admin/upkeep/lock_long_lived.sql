-- Instances that still need rows from before a moment, locked against every other writer; those somebody holds are left out.
-- Their contexts may be large and stay where they are.
select t.id, t.org_id, t.definition_id, t.flow, t.flow_version, t.version, t.status, t.state::text, t.reason, t.entity_version,
    greatest(holdfast.clock(), t.updated_at)
from holdfast.instances t
where t.id = any($1::uuid[]) and num_nulls(t.completed_at) = 1 and coalesce(t.carried_at, t.created_at) < $2::timestamptz
order by t.id
for no key update skip locked

-- One instance with its snapshot, locked against every other writer.
select t.id, t.org_id, t.definition_id, t.flow, t.flow_version, t.version, t.status, t.state::text, t.data::text, t.reason,
    t.entity_version, t.parent_id, t.parent_token, t.input::text, greatest(holdfast.clock(), t.updated_at),
    t.carried_at
from holdfast.instances t
where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
for no key update

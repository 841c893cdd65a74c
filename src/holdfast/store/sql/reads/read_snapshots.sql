-- Instances of one organisation by id, each with its snapshot.
select t.id, t.version, t.org_id, t.definition_id, t.flow, t.flow_version, t.status, t.reason, t.state, '{}'::jsonb,
    t.entity_version, t.parent_id, t.parent_token, t.trace, null::jsonb, t.created_at, t.created_by,
    t.attributes ->> 'partition_id', t.attributes ->> 'correlation_id', t.updated_at
from unnest($1::uuid[], $2::smallint[]) as u(id, bucket)
join holdfast.instances t on t.id = any(array[u.id]) and t.bucket = u.bucket
where t.org_id = $3::text

-- Lock instances by id without waiting; give back only those whose cached version is old in full.
select t.id, t.version, t.org_id, t.definition_id, t.flow, t.flow_version, t.status, t.reason,
    case when t.version <> u.version then t.state end, case when t.version <> u.version then t.data end,
    t.entity_version, t.parent_id, t.parent_token, t.trace, case when t.version = 0 then t.input end, t.created_at, t.created_by,
    t.attributes ->> 'partition_id', t.attributes ->> 'correlation_id', t.updated_at
from unnest($1::uuid[], $2::smallint[], $3::bigint[]) as u(id, bucket, version)
join holdfast.instances t on t.id = any(array[u.id]) and t.bucket = u.bucket
order by u.id
for no key update of t skip locked

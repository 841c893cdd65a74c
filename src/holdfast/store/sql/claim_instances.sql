-- Lock the instances that have ready signals, oldest signal first, without waiting for anybody.
select t.id, t.version, t.org_id, t.definition_id, t.flow, t.flow_version, t.status, t.reason, t.state, t.data,
    t.entity_version, t.parent_id, t.parent_token, t.trace, case when t.version = 0 then t.input end, t.created_at, t.created_by,
    t.attributes ->> 'partition_id', t.attributes ->> 'correlation_id'
from holdfast.signals s
join holdfast.instances t on t.id = any(array[s.instance_id]) and t.bucket = s.bucket
order by s.ripe_at
limit $1::bigint
for no key update of t skip locked

-- Lock the instances that have ready signals, oldest signal first, without waiting for anybody.
-- Only the oldest signal of an instance counts, so one with many takes no more room than the others. Looking for others
-- ends behind some thousand signals: past a longer crowd the queue is what it is, and a claim costs what it costs.
select t.id, t.version, t.org_id, t.definition_id, t.flow, t.flow_version, t.status, t.reason, t.state, t.data,
    t.entity_version, t.parent_id, t.parent_token, t.trace, case when t.version = 0 then t.input end, t.created_at, t.created_by,
    t.attributes ->> 'partition_id', t.attributes ->> 'correlation_id', t.updated_at
from (
    select s.instance_id, s.bucket, s.ripe_at
    from (select instance_id, bucket, ripe_at, id from holdfast.signals order by ripe_at limit 1000 + 4 * $1::bigint) s
    where not exists (
        select from holdfast.signals e
        where e.instance_id = any(array[s.instance_id]) and e.bucket = s.bucket
            and row(e.ripe_at, e.id) < row(s.ripe_at, s.id)
    )
    order by s.ripe_at
) oldest
join holdfast.instances t on t.id = any(array[oldest.instance_id]) and t.bucket = oldest.bucket
order by oldest.ripe_at
limit $1::bigint
for no key update of t skip locked

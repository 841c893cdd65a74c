-- Where an instance of a machine stands: its state, the entry's number, the event that led there, what holds it.
select i.flow, i.flow_version, i.status, i.reason, coalesce(i.business_key, i.id::text), i.data,
    coalesce(i.state #>> '{tokens,0,node}', s.node), coalesce((i.state #>> '{tokens,0,hop}')::bigint, s.hop::bigint, 0),
    coalesce(p.outcome, c.outcome),
    coalesce((select jsonb_agg(w.value ->> 'event' order by w.value ->> 'event')
        from jsonb_array_elements(i.state #> '{tokens,0,waits}') w where w.value ->> 'kind' = 'gate'), '[]'),
    (select count(*) from (select from holdfast.ack_consumers a
        where a.instance_id = i.id and a.bucket = i.bucket and a.closed_at is null limit 10000) open)
from holdfast.instances i
left join lateral (
    select t.node, t.hop from holdfast.steps t
    where t.instance_id = i.id and t.bucket = i.bucket and t.kind = 'forward' and i.completed_at is not null
    order by t.created_at desc, t.opened_version desc, t.opened_ordinal desc limit 1
) s on true
left join lateral (
    select t.outcome from holdfast.steps t
    where t.instance_id = i.id and t.bucket = i.bucket and t.kind = 'forward' and t.closed_at is not null
        and t.hop < coalesce((i.state #>> '{tokens,0,hop}')::bigint, s.hop::bigint, 0)
    order by t.created_at desc, t.opened_version desc, t.opened_ordinal desc limit 1
) p on true
left join lateral (  -- what led to a state that was carried, where the row of the state before is gone
    select t.detail #>> '{before,outcome}' as outcome from holdfast.steps t
    where t.instance_id = i.id and t.bucket = i.bucket and t.created_at = i.carried_at and t.kind = 'forward'
        and t.hop = coalesce((i.state #>> '{tokens,0,hop}')::bigint, s.hop::bigint, 0)
    limit 1
) c on true
where i.id = $1::uuid and i.bucket = $2::smallint and i.org_id = $3::text

-- The lifecycle of one machine: its instance, its entries into states in their order, and the activities in each.
-- An entry that was carried into a later month is told by its newest row, which knows when it began and what led to it.
with i as materialized (
    select i.id, i.org_id, i.bucket, i.flow, i.flow_version, i.definition_id, i.business_key, i.status, i.created_at, i.updated_at
    from holdfast.instances i
    where i.id = $1::uuid and i.bucket = $2::smallint and i.org_id = $3::text
), d as materialized (
    select d.compiled -> 'config' as config, d.compiled #> '{config,codes}' as codes
    from i
    cross join lateral (select d.compiled from holdfast.definitions d where d.id = i.definition_id limit 1) d
), visits as materialized (
    select s.id, s.hop, s.node, coalesce((s.detail ->> 'since')::timestamptz, s.created_at) as created_at, s.outcome, s.output,
        s.opened_by, s.closed_by, s.closing, s.detail, s.opened_version, s.opened_ordinal
    from holdfast.steps s
    where s.instance_id = $1::uuid and s.bucket = $2::smallint and s.org_id = $3::text and s.path = '0' and s.kind = 'forward'
        and s.behaviour in ('rest', 'end') and s.run = 0 and s.outcome is distinct from 'carried'
    order by s.opened_version desc, s.opened_ordinal desc limit $4::bigint + 1
), entries as materialized (
    select v.id, v.hop, v.opened_version, v.opened_ordinal, v.node as to_state, v.created_at,
        coalesce(lag(v.closing) over w ->> 'occurred_at', v.detail #>> '{before,occurred_at}', to_jsonb(v.created_at) #>> '{}')
            as occurred_at,
        coalesce(lag(v.closing) over w ->> 'by', lag(v.closed_by) over w, v.detail #>> '{before,closed_by}', v.opened_by) as actor,
        coalesce(lag(v.node) over w, v.detail #>> '{before,node}') as from_state,
        coalesce(lag(v.outcome) over w, v.detail #>> '{before,outcome}') as event,
        coalesce(lag(v.output) over w, v.detail #> '{before,output}') as payload,
        row_number() over (order by v.opened_version desc, v.opened_ordinal desc) as nth
    from visits v
    window w as (order by v.opened_version, v.opened_ordinal)
), told as (
    select coalesce(jsonb_agg(jsonb_build_object(
        'number', e.hop, 'id', e.id, 'from_state', e.from_state, 'to_state', e.to_state, 'event', e.event,
        'event_code', d.codes -> e.event, 'actor', e.actor, 'payload', e.payload, 'occurred_at', e.occurred_at,
        'created_at', e.created_at, 'activities', a.activities
    ) order by e.opened_version, e.opened_ordinal), '[]') as entries
    from entries e
    left join d on true
    cross join lateral (
        select coalesce(jsonb_agg(jsonb_build_object(
            'id', a.id, 'instance_id', a.instance_id, 'entry', e.hop, 'state', a.state, 'name', a.name, 'actor', a.actor,
            'status', a.status, 'data', a.data, 'frozen', a.frozen, 'created_at', a.created_at, 'updated_at', a.updated_at
        ) order by a.id), '[]') as activities
        from holdfast.activities a
        where a.instance_id = $1::uuid and a.step_id = e.id and a.bucket = $2::smallint
    ) a
    where e.nth <= $4::bigint
), other as (
    select coalesce(jsonb_agg(jsonb_build_object(
        'id', a.id, 'instance_id', a.instance_id, 'entry', null, 'state', a.state, 'name', a.name, 'actor', a.actor,
        'status', a.status, 'data', a.data, 'frozen', a.frozen, 'created_at', a.created_at, 'updated_at', a.updated_at
    ) order by a.id), '[]') as activities
    from holdfast.activities a
    where a.instance_id = $1::uuid and a.bucket = $2::smallint and (a.step_id is null or (
        a.step_id not in (select e.id from entries e) and not exists (
            select from holdfast.steps s
            where s.instance_id = $1::uuid and s.created_at = a.step_created_at and s.id = a.step_id
                and s.bucket = $2::smallint)))
)
select jsonb_build_object(
    'instance', jsonb_build_object(
        'id', i.id, 'guid', i.id, 'external_ref', i.business_key, 'definition', coalesce(d.config ->> 'definition', i.flow),
        'environment', d.config ->> 'environment', 'flow', i.flow, 'definition_version', i.flow_version,
        'blueprint_version', d.config -> 'blueprint', 'status', i.status,
        'current_state', (select e.to_state from entries e where e.nth = 1),
        'last_event', (select e.event from entries e where e.nth = 1),
        'created_at', i.created_at, 'modified_at', i.updated_at),
    'entries', told.entries,
    'truncated', (select count(*) > $4::bigint from entries),
    'other_activities', other.activities)
from i
left join d on true
cross join told
cross join other

-- The lifecycle of one machine: its instance, its entries into states in their order, and the activities in each.
-- An entry that was carried into a later month is told by its newest row, which knows when it began and what led to it.
-- The latest entries are told until their payloads have $5 bytes, and activities likewise. The first bound is that of what is
-- stored, compressed, which is known without reading it.
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
), stored as materialized (  -- the first entry that is too much, as stored; and by its text
    select coalesce(min(w.nth), $4::bigint + 1) as nth from (
        select e.nth, sum(e.size) over (order by e.nth rows between unbounded preceding and 1 preceding) as before
        from (select e.nth, pg_column_size(e.payload) as size from entries e offset 0) e
    ) w
    where w.before >= $5::bigint
), bound as materialized (
    select coalesce(min(w.nth), (select least(s.nth, $4::bigint + 1) from stored s)) as nth from (
        select e.nth, sum(e.size) over (order by e.nth rows between unbounded preceding and 1 preceding) as before
        from (
            select e.nth, octet_length(e.payload::text) as size
            from entries e where e.nth < (select least(s.nth, $4::bigint + 1) from stored s) offset 0
        ) e
    ) w
    where w.before >= $5::bigint
), work as materialized (
    select a.*, sum(coalesce(pg_column_size(a.data), 0) + 500) over back as stored_before
    from holdfast.activities a
    where a.instance_id = $1::uuid and a.bucket = $2::smallint
    window back as (order by a.id desc rows between unbounded preceding and 1 preceding)
), acts as materialized (
    select a.id, a.step_id, s.hop, json_build_object(
        'id', a.id, 'instance_id', a.instance_id, 'entry', s.hop, 'state', a.state, 'name', a.name, 'actor', a.actor,
        'status', a.status, 'data', a.data, 'frozen', a.frozen, 'created_at', a.created_at, 'updated_at', a.updated_at
    ) as activity
    from (
        select w.*, sum(coalesce(octet_length(w.data::text), 0) + 500) over back as before from work w
        where coalesce(w.stored_before, 0) < $5::bigint
        window back as (order by w.id desc rows between unbounded preceding and 1 preceding)
    ) a
    left join lateral (
        select s.hop from holdfast.steps s
        where s.instance_id = $1::uuid and s.created_at = a.step_created_at and s.id = a.step_id and s.bucket = $2::smallint
        limit 1
    ) s on true
    where coalesce(a.before, 0) < $5::bigint
), joined as (  -- by a sort of both: a join would be a loop, whose plan depends on statistics
    select x.*, lag(x.activities) over (partition by x.id order by x.is_entry) as told
    from (
        select e.id, e.hop, e.opened_version, e.opened_ordinal, e.to_state, e.created_at, e.occurred_at, e.actor,
            e.from_state, e.event, e.payload, e.nth, null::json as activities, true as is_entry
        from entries e where e.nth < (select b.nth from bound b)
        union all
        select a.step_id, null, null, null, null, null, null, null, null, null, null, null, json_agg(a.activity order by a.id),
            false
        from acts a where a.step_id is not null group by a.step_id
    ) x
), told as (
    select coalesce(json_agg(json_build_object(
        'number', j.hop, 'id', j.id, 'from_state', j.from_state, 'to_state', j.to_state, 'event', j.event,
        'event_code', d.codes -> j.event, 'actor', j.actor, 'payload', j.payload, 'occurred_at', j.occurred_at,
        'created_at', j.created_at, 'activities', coalesce(j.told, '[]')
    ) order by j.opened_version, j.opened_ordinal), '[]') as entries
    from joined j
    left join d on true
    where j.is_entry
), other as (
    select coalesce(json_agg(a.activity order by a.id), '[]') as activities from acts a
    where a.hop is null and (a.step_id is null or a.step_id not in (select e.id from entries e))
)
select json_build_object(
    'instance', json_build_object(
        'id', i.id, 'guid', i.id, 'external_ref', i.business_key, 'definition', coalesce(d.config ->> 'definition', i.flow),
        'environment', d.config ->> 'environment', 'flow', i.flow, 'definition_version', i.flow_version,
        'blueprint_version', d.config -> 'blueprint', 'status', i.status,
        'current_state', (select e.to_state from entries e where e.nth = 1),
        'last_event', (select e.event from entries e where e.nth = 1),
        'created_at', i.created_at, 'modified_at', i.updated_at),
    'entries', told.entries,
    'truncated', exists (select from entries e where e.nth >= (select b.nth from bound b))
        or (select count(*) from work) > (select count(*) from acts),
    'other_activities', other.activities)
from i
left join d on true
cross join told
cross join other

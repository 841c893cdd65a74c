-- Look at the instances whose rest may have lasted too long: a notice for each consumer of those that stand still.
-- The look that is due next is written by the same statement, so that no other engine tells of the same rest again.
with due as materialized (
    select c.instance_id, c.bucket, c.org_id, c.after, c.told, c.step_id from holdfast.stale_checks c
    where c.due_at <= (select holdfast.clock())
    order by c.due_at limit $1::bigint
    for update skip locked
), seen as materialized (
    select d.*, i.flow, i.flow_version, i.definition_id, i.business_key, i.status, i.node, i.phase, i.rest,
        -- The beginning of the rest is in the id of its step, which stays when the row of the step is carried elsewhere.
        to_timestamp(('x' || translate(left(i.rest::text, 13), '-', ''))::bit(48)::bigint / 1000.0) as began,
        case when i.rest is not distinct from d.step_id then d.told else 0 end as told_of,
        (select holdfast.clock()) as now
    from due d
    left join lateral (
        select i.flow, i.flow_version, i.definition_id, i.business_key, i.status::text as status, i.state #>> '{tokens,0,node}' as node,
            i.state #>> '{tokens,0,phase}' as phase,
            encode(decode(i.state #>> '{tokens,0,step}', 'base64'), 'hex')::uuid as rest
        from holdfast.instances i
        where i.id = any(array[d.instance_id]) and i.bucket = d.bucket
        limit 1
    ) i on true
), ripe as materialized (
    select s.*, coalesce(s.status = 'running' and s.phase = 'resting' and s.rest is not null, false) as rests,
        s.began + make_interval(secs => s.after) as first_due
    from seen s
), judged as materialized (
    select r.*, x.environment, x.name, x.waits or x.has_timeout as is_covered
    from ripe r
    left join lateral (
        select exists (
                select from holdfast.ack_consumers a
                where a.instance_id = r.instance_id and num_nulls(a.closed_at) = 1 and a.closed_at is null
            ) as waits,
            d.compiled #>> array['nodes', r.node, 'config', 'timeout', 'event'] is not null as has_timeout,
            d.compiled #>> '{config,environment}' as environment,
            coalesce(d.compiled #>> '{config,definition}', r.flow) as name
        from holdfast.definitions d
        where d.id = any(array[r.definition_id])
        limit 1
    ) x on r.rests and r.first_due <= r.now
), stale as materialized (
    select j.* from judged j where j.rests and j.first_due <= j.now and not coalesce(j.is_covered, false)
), heard as (
    select s.*, c.id as consumer_id, c.name as consumer
    from stale s
    left join lateral (
        select c.id, c.name from holdfast.consumers c
        where c.org_id = s.org_id and c.environment = s.environment and c.removed_at is null and c.takes_transitions
            and (c.definitions is null or s.name = any(c.definitions))
        order by c.name
        limit 1000
    ) c on true
), told as (
    insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
    select h.id, get_byte(uuid_send(h.id), 15), h.now, h.org_id, 'DEFAULT_STATE_STALE', 'overdue',
        format('%s has rested in %s for %s s, and nothing is open.', coalesce(h.business_key, h.instance_id::text), h.node,
            h.seconds),
        h.instance_id, h.consumer,
        jsonb_build_object(
            'consumer_id', h.consumer_id, 'instance_id', h.instance_id, 'instance_guid', h.instance_id,
            'external_ref', h.business_key, 'definition_version', h.flow_version, 'current_state_id', h.node,
            'state_name', h.node, 'lifecycle_id', h.rest, 'stale_seconds', h.seconds,
            'environment', h.environment, 'definition', h.name)
    from (
        select holdfast.new_id() as id, floor(extract(epoch from heard.now - heard.began))::bigint as seconds, heard.*
        from heard
        offset 0  -- an id is made once
    ) h
    returning 1
), over as (
    delete from holdfast.stale_checks t using judged j
    where t.instance_id = any(array[j.instance_id]) and t.bucket = j.bucket
        and (j.status is null or j.status in ('completed', 'failed', 'cancelled', 'aborted'))
    returning 1
), next as (
    update holdfast.stale_checks t set step_id = j.rest,
        told = case when j.rests and j.first_due <= j.now and not coalesce(j.is_covered, false) then least(j.told_of + 1, 30)
            else j.told_of end,
        due_at = case
            when not j.rests or j.is_covered then j.now + make_interval(secs => greatest(j.after, 1))
            when j.first_due > j.now then j.first_due
            else j.now + make_interval(secs => greatest(j.after, least(j.after * 2 ^ least(j.told_of + 1, 30), 86400), 1))
        end
    from judged j
    where t.instance_id = any(array[j.instance_id]) and t.bucket = j.bucket
        and j.status is not null and j.status not in ('completed', 'failed', 'cancelled', 'aborted')
    returning 1
)
select (select count(*) from due), (select count(*) from told), (select count(*) from over), (select count(*) from next)

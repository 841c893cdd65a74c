-- Move signals that cannot be applied to the dead letters, envelope and reason kept, and say so in the audit trail.
-- Who has the instance now has its signals, too: they stay, and are found unfit again.
with held as materialized (
    select u.*, i.flow from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::jsonb[], $6::int[])
        as u(instance, bucket, id, reason, error, tried)
    join holdfast.instances i on i.id = any(array[u.instance]) and i.bucket = u.bucket
    for no key update of i skip locked
), gone as (
    delete from holdfast.signals t
    using held u
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.id = u.id
    returning t.*, u.flow, u.reason, u.error as failure, u.tried
), letters as (
    insert into holdfast.dead_letters
        (id, bucket, org_id, instance_id, flow, step, source, envelope, reason, error, attempts, worker, created_at)
    select holdfast.new_id(g.bucket), g.bucket, g.org_id, g.instance_id, g.flow, g.payload ->> 'node', 'signal',
        jsonb_build_object('id', g.id, 'kind', g.kind, 'payload', g.payload, 'ripe_at', g.ripe_at, 'trace', g.trace),
        g.reason, g.failure, g.attempts + g.tried, $7::uuid, (select holdfast.clock())
    from gone g
    returning id, bucket, org_id, instance_id, envelope, reason, attempts, created_at
), told as (
    insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, actor, detail)
    select l.instance_id, l.bucket, holdfast.date_beside(l.instance_id, l.bucket, i.version, i.updated_at, l.created_at),
        i.version, 32000 + row_number() over (partition by l.instance_id),
        l.org_id, 'signal_dead_lettered', 'system',
        jsonb_build_object('letter', l.id, 'signal', l.envelope ->> 'id', 'kind', l.envelope ->> 'kind',
            'event', l.envelope #>> '{payload,event}', 'code', l.reason)
    from letters l
    cross join lateral (
        select t.version, t.updated_at from holdfast.instances t where t.id = any(array[l.instance_id]) and t.bucket = l.bucket limit 1
    ) i
)
select i.flow, l.org_id, l.envelope ->> 'kind', l.attempts
from letters l
cross join lateral (
    select t.flow from holdfast.instances t where t.id = any(array[l.instance_id]) and t.bucket = l.bucket limit 1
) i

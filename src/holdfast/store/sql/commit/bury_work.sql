-- Park steps whose result nothing can be decided on: out of every queue, with a dead letter that can bring them back.
with parked as (
    update holdfast.work t set queue = 'dead letter', worker = null, deadline_at = null
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::text[], $6::jsonb[], $7::jsonb[])
        as u(instance, bucket, path, fence, reason, error, result)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.fence
        and t.worker is not distinct from $8::uuid
    returning t.*, u.reason, u.error, u.result
), letters as (
    insert into holdfast.dead_letters
        (id, bucket, org_id, instance_id, flow, step, source, envelope, reason, error, attempts, worker, created_at)
    select holdfast.new_id(p.bucket), p.bucket, p.org_id, p.instance_id, i.flow, s.node, 'work',
        jsonb_build_object('path', p.path, 'step', p.step_id, 'node', s.node, 'queue', p.target, 'fence', p.fence,
            'input', s.input, 'result', p.result),
        p.reason, p.error, s.calls, $8::uuid, (select holdfast.clock())
    from parked p
    cross join lateral (
        select t.node, t.input, t.calls from holdfast.steps t
        where t.instance_id = any(array[p.instance_id]) and t.created_at = p.step_created_at and t.id = p.step_id
            and t.bucket = p.bucket
        limit 1
    ) s
    cross join lateral (
        select t.flow from holdfast.instances t where t.id = any(array[p.instance_id]) and t.bucket = p.bucket limit 1
    ) i
    returning id, bucket, org_id, instance_id, flow, envelope, reason, attempts, created_at
), told as (
    insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, node, actor, detail)
    select l.instance_id, l.bucket, holdfast.date_beside(l.instance_id, l.bucket, i.version, i.updated_at, l.created_at),
        i.version, 32000 + row_number() over (partition by l.instance_id),
        l.org_id, 'step_dead_lettered', l.envelope ->> 'node', 'system',
        jsonb_build_object('letter', l.id, 'step', l.envelope ->> 'step', 'code', l.reason)
    from letters l
    cross join lateral (
        select t.version, t.updated_at from holdfast.instances t where t.id = any(array[l.instance_id]) and t.bucket = l.bucket limit 1
    ) i
)
select l.flow, l.org_id, l.envelope ->> 'node', l.attempts from letters l

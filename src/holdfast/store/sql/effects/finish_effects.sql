-- The outcome of deliveries: status and evidence, the receipt a node waits for, a dead letter, a line in the audit trail.
-- Answers those that counted, with the place of each that failed.
with done as (
    update holdfast.effects t set status = u.status, evidence = u.evidence, error = u.error, worker = null,
        deadline_at = null, next_attempt_at = (select holdfast.clock()) + u.delay * interval '1 microsecond',
        completed_at = case when u.status in ('completed', 'dead_letter') then (select holdfast.clock()) end
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::bigint[], $6::uuid[], $7::text[],
        $8::bigint[], $9::jsonb[], $10::jsonb[], $11::jsonb[])
        as u(instance, bucket, created_at, id, fence, worker, status, delay, evidence, error, output)
    where t.instance_id = any(array[u.instance]) and t.created_at = u.created_at and t.id = u.id and t.bucket = u.bucket
        and t.fence = u.fence and t.worker is not distinct from u.worker
    returning t.*, u.worker as holder, u.output
), answered as (
    insert into holdfast.signals (instance_id, bucket, id, org_id, kind, payload, trace, ripe_at)
    select d.instance_id, d.bucket, md5(d.id::text || d.fence::text)::uuid, d.org_id, 'receipt',
        jsonb_build_object('token', d.token, 'effect', encode(uuid_send(d.id), 'hex'), 'output', d.output,
            'error', case when d.status = 'dead_letter' then d.error end),
        d.trace, (select holdfast.clock())
    from done d
    where d.awaited and d.status in ('completed', 'dead_letter')
    on conflict do nothing
), buried as (
    insert into holdfast.dead_letters as l (id, bucket, org_id, instance_id, flow, step, source, envelope, reason,
        error, attempts, worker, created_at)
    select d.id, d.bucket, d.org_id, d.instance_id, i.flow, s.node, 'effect',
        jsonb_build_object('effect', d.id, 'created_at', d.created_at, 'type', d.effect_type, 'target', d.target,
            'key', d.key, 'token', d.token, 'awaited', d.awaited, 'payload', d.payload),
        coalesce(d.error ->> 'code', 'EFFECT_FAILED'), d.error, d.attempts, d.holder, (select holdfast.clock())
    from done d
    join holdfast.instances i on i.id = any(array[d.instance_id]) and i.bucket = d.bucket
    left join lateral (
        select t.node from holdfast.steps t
        where t.instance_id = d.instance_id and t.created_at = d.step_created_at and t.id = d.step_id
            and t.bucket = d.bucket
        limit 1
    ) s on true
    where d.status = 'dead_letter'
    -- Replayed once and dead again: the same letter is open again.
    on conflict (id, bucket) do update set reason = excluded.reason, error = excluded.error,
        attempts = excluded.attempts, worker = excluded.worker, created_at = excluded.created_at,
        resolved_at = null, resolution = null, resolved_by = null
), noted as (
    -- Behind the entries of the commit that made the version: nobody else writes ordinals that high.
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail,
        created_at)
    select d.instance_id, d.bucket, d.org_id, i.version, 1000 + row_number() over (order by d.id),
        case d.status when 'completed' then 'effect_delivered' when 'dead_letter' then 'effect_dead'
            else 'effect_failed' end,
        s.node, d.token, 'system',
        jsonb_strip_nulls(jsonb_build_object('effect', encode(uuid_send(d.id), 'hex'), 'type', d.effect_type,
            'attempt', d.attempts, 'status', d.evidence -> 'status', 'code', d.error -> 'code',
            'message', d.error -> 'message',
            'next_attempt_at', case when d.status = 'failed' then d.next_attempt_at end)),
        holdfast.date_beside(i.id, i.bucket, i.version, i.updated_at, (select holdfast.clock()))
    from done d
    join holdfast.instances i on i.id = any(array[d.instance_id]) and i.bucket = d.bucket
    left join lateral (
        select t.node from holdfast.steps t
        where t.instance_id = d.instance_id and t.created_at = d.step_created_at and t.id = d.step_id
            and t.bucket = d.bucket
        limit 1
    ) s on true
)
select d.id, d.fence, d.awaited, p.flow, p.node
from done d
left join lateral (
    select i.flow, s.node
    from holdfast.instances i
    left join lateral (
        select t.node from holdfast.steps t
        where t.instance_id = d.instance_id and t.created_at = d.step_created_at and t.id = d.step_id
            and t.bucket = d.bucket
        limit 1
    ) s on true
    where d.status <> 'completed' and i.id = any(array[d.instance_id]) and i.bucket = d.bucket
    limit 1
) p on true

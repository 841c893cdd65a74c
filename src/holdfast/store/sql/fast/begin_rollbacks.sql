-- The plain turn backwards, all its tables at once: a step has failed for good, its rollback is planned and begins.
-- Where the step that failed is the first to be taken back, its row goes from running to compensation in one update.
with i as (
    update holdfast.instances t set version = u.version, status = 'rolling_back', reason = u.reason, state = u.state,
        waiting_kind = null, waiting_until = null, last_error = u.error, error_code = left(u.error ->> 'code', 200),
        error_step = u.failed_node, updated_at = $49::timestamptz, last_by = $50::uuid
    from unnest($1::uuid[], $2::smallint[], $4::bigint[], $5::jsonb[], $6::text[], $7::jsonb[], $19::text[])
        as u(instance, bucket, version, state, reason, error, failed_node)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 2
        and t.updated_at <= $49::timestamptz
    returning 1
), w as (
    update holdfast.work t set step_id = u.next, step_created_at = $49::timestamptz, target = u.queue, fence = u.fence,
        patience = u.patience, deadline_at = $49::timestamptz + u.patience * interval '1 second'
    from unnest($1::uuid[], $2::smallint[], $8::text[], $9::bigint[], $10::bigint[], $11::uuid[], $12::text[], $13::real[])
        as u(instance, bucket, path, held, fence, next, queue, patience)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.held
        and t.worker is not distinct from $50::uuid
    returning 1
), c as (
    update holdfast.steps t set status = u.status, outcome = u.outcome, chosen_edge_ids = '[]', error = u.error,
        closing = u.closing, closed_version = u.version - 1, closed_ordinal = 0, closed_by = 'system',
        closed_at = $49::timestamptz
    from unnest($1::uuid[], $2::smallint[], $4::bigint[], $7::jsonb[], $14::uuid[], $15::timestamptz[], $16::text[],
        $17::text[], $18::jsonb[])
        as u(instance, bucket, version, error, failed, failed_at, status, outcome, closing)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.failed_at and t.id = u.failed
        and num_nulls(t.closed_at) = 1
    returning 1
), m as (
    update holdfast.steps t set status = u.status
    from unnest($28::uuid[], $29::smallint[], $30::timestamptz[], $31::uuid[], $32::text[])
        as u(instance, bucket, at, id, status)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
    returning 1
), r as (
    insert into holdfast.step_receipts (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)
    select u.instance, u.bucket, u.token, 'compensate', 0, u.org, u.key, u.step, $49::timestamptz
    from unnest($33::uuid[], $34::smallint[], $35::text[], $37::uuid[], $41::text[], $42::bytea[])
        as u(instance, bucket, org, step, token, key)
), s as (
    insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
        receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, detail, calls, fence, created_at)
    select u.instance, u.bucket, u.step, u.org, u.node, 'work', u.path, u.hop, 'compensate', 0, u.entity_version, u.key,
        u.version, u.ordinal, 'system', 'rollback', case u.calls when 0 then 'pending' else 'running' end, u.input, u.detail,
        u.calls, u.fence, $49::timestamptz
    from unnest($33::uuid[], $34::smallint[], $35::text[], $36::bigint[], $37::uuid[], $38::text[], $39::text[], $40::int[],
        $42::bytea[], $43::bigint[], $44::smallint[], $45::jsonb[], $46::jsonb[], $47::int[], $48::bigint[])
        as u(instance, bucket, org, entity_version, step, node, path, hop, key, version, ordinal, input, detail, calls, fence)
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail, created_at)
    select u.instance, u.bucket, u.org, u.version - x.before, x.ordinal, x.type, x.node, x.token, 'system', x.detail,
        $49::timestamptz
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $19::text[], $20::text[], $21::jsonb[], $22::jsonb[],
        $23::jsonb[], $24::smallint[], $25::text[], $26::text[], $27::jsonb[])
        as u(instance, bucket, org, version, failed_node, failed_token, told_failed, told_start, told_plan, planned, next_node,
            next_token, told_next)
    cross join lateral (values
        (1, 1::smallint, 'step_failed', u.failed_node, u.failed_token, u.told_failed),
        (1, 2::smallint, 'rollback_started', null, null, u.told_start),
        (0, u.planned, 'rollback_planned', null, null, u.told_plan),
        (0, (u.planned + 1)::smallint, 'compensation_started', u.next_node, u.next_token, u.told_next)
    ) as x(before, ordinal, type, node, token, detail)
)
select holdfast.expect('begin_rollbacks', least((select count(*) from i), (select count(*) from w), (select count(*) from c)),
        $51::bigint),
    holdfast.expect('begin_rollbacks: moves', (select count(*) from m), $52::bigint)

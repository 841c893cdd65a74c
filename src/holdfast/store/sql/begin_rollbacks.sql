-- The plain turn backwards, all its tables at once: a step has failed for good, its rollback is planned and begins.
-- Where the step that failed is the first to be taken back, its row goes from running to compensation in one update.
with i as (
    update holdfast.instances t set version = u.version, status = 'rolling_back', reason = u.reason, state = u.state,
        waiting_kind = null, waiting_until = null, last_error = u.error, updated_at = $50::timestamptz, last_by = $51::uuid
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::bigint[], $6::jsonb[], $7::text[], $8::jsonb[],
        $9::text[], $10::bigint[], $11::bigint[], $12::uuid[], $13::text[], $14::real[], $15::uuid[], $16::timestamptz[],
        $17::text[], $18::text[], $19::jsonb[], $20::text[], $21::text[], $22::jsonb[],
        $23::jsonb[], $24::jsonb[], $25::smallint[], $26::text[], $27::text[], $28::jsonb[])
        as u(instance, bucket, org, entity_version, version, state, reason, error, path, held, fence, next, queue, patience,
            failed, failed_at, status, outcome, closing, failed_node, failed_token, told_failed,
            told_start, told_plan, planned, next_node, next_token, told_next)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 2
    returning u.instance, u.bucket, u.org, u.entity_version, u.version, u.error, u.path, u.held, u.fence, u.next, u.queue,
        u.patience, u.failed, u.failed_at, u.status, u.outcome, u.closing, u.failed_node, u.failed_token, u.told_failed,
        u.told_start, u.told_plan, u.planned, u.next_node, u.next_token, u.told_next
), w as (
    update holdfast.work t set step_id = i.next, step_created_at = $50::timestamptz, target = i.queue, fence = i.fence,
        patience = i.patience, deadline_at = $50::timestamptz + i.patience * interval '1 second'
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.path = i.path and t.fence = i.held
        and t.worker is not distinct from $51::uuid
    returning 1
), c as (
    update holdfast.steps t set status = i.status, outcome = i.outcome, chosen_edge_ids = '[]', error = i.error,
        closing = i.closing, closed_version = i.version - 1, closed_ordinal = 0, closed_by = 'system',
        closed_at = $50::timestamptz
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.failed_at and t.id = i.failed
        and num_nulls(t.closed_at) = 1
    returning 1
), m as (
    update holdfast.steps t set status = u.status
    from unnest($29::uuid[], $30::smallint[], $31::timestamptz[], $32::uuid[], $33::text[])
        as u(instance, bucket, at, id, status)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
    returning 1
), n as (
    select u.*
    from unnest($34::uuid[], $35::smallint[], $36::text[], $37::bigint[], $38::uuid[], $39::text[], $40::text[], $41::int[],
        $42::text[], $43::bytea[], $44::bigint[], $45::smallint[], $46::jsonb[], $47::jsonb[], $48::int[], $49::bigint[])
        as u(instance, bucket, org, entity_version, step, node, path, hop, token, key, version, ordinal, input, detail, calls,
            fence)
), r as (
    insert into holdfast.step_receipts (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)
    select n.instance, n.bucket, n.token, 'compensate', 0, n.org, n.key, n.step, $50::timestamptz from n
), s as (
    insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
        receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, detail, calls, fence, created_at)
    select n.instance, n.bucket, n.step, n.org, n.node, 'work', n.path, n.hop, 'compensate', 0, n.entity_version, n.key,
        n.version, n.ordinal, 'system', 'rollback', case n.calls when 0 then 'pending' else 'running' end, n.input, n.detail,
        n.calls, n.fence, $50::timestamptz
    from n
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail, created_at)
    select i.instance, i.bucket, i.org, i.version - x.before, x.ordinal, x.type, x.node, x.token, 'system', x.detail,
        $50::timestamptz
    from i cross join lateral (values
        (1, 1::smallint, 'step_failed', i.failed_node, i.failed_token, i.told_failed),
        (1, 2::smallint, 'rollback_started', null, null, i.told_start),
        (0, i.planned, 'rollback_planned', null, null, i.told_plan),
        (0, (i.planned + 1)::smallint, 'compensation_started', i.next_node, i.next_token, i.told_next)
    ) as x(before, ordinal, type, node, token, detail)
)
select holdfast.expect('begin_rollbacks', least((select count(*) from i), (select count(*) from w), (select count(*) from c)),
        $52::bigint),
    holdfast.expect('begin_rollbacks: moves', (select count(*) from m), $53::bigint)

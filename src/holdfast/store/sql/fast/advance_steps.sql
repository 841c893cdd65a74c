-- The plain step, all its tables at once: a result is in and the token goes on to the next step under the same lease.
with i as (
    update holdfast.instances t set version = u.version, state = u.state, data = coalesce(u.data, t.data),
        updated_at = $24::timestamptz, last_by = $25::uuid
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::jsonb[], $6::jsonb[], $7::text[], $8::int[],
        $9::text[], $10::uuid[], $11::timestamptz[], $12::text[], $13::text[], $14::jsonb[], $15::jsonb[], $16::text[],
        $17::uuid[], $18::bytea[], $19::jsonb[], $20::bigint[], $21::text[], $22::real[], $23::bigint[])
        as u(instance, bucket, org, version, state, data, path, hop, token, left_id, left_at, left_node, left_token, chosen,
            output, node, step, key, input, fence, queue, patience, entity_version)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 1
        and t.updated_at <= $24::timestamptz
    returning u.instance, u.bucket, u.org, u.version, u.path, u.hop, u.token, u.left_id, u.left_at, u.left_node, u.left_token,
        u.chosen, u.output, u.node, u.step, u.key, u.input, u.fence, u.queue, u.patience, u.entity_version
), w as (
    update holdfast.work t set step_id = i.step, step_created_at = $24::timestamptz, target = i.queue, fence = i.fence,
        patience = i.patience, deadline_at = $24::timestamptz + i.patience * interval '1 second'
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.path = i.path and t.fence = i.fence - 1
        and t.worker is not distinct from $25::uuid
    returning 1
), c as (
    update holdfast.steps t set status = 'completed', outcome = 'completed', chosen_edge_ids = i.chosen, output = i.output,
        closed_version = i.version, closed_ordinal = 0, closed_by = 'system', closed_at = $24::timestamptz
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.left_at and t.id = i.left_id
        and t.closed_at is null
    returning 1
), r as (
    insert into holdfast.step_receipts (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)
    select i.instance, i.bucket, i.token, 'forward', 0, i.org, i.key, i.step, $24::timestamptz from i
), s as (
    insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
        receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, calls, fence, created_at)
    select i.instance, i.bucket, i.step, i.org, i.node, 'work', i.path, i.hop, 'forward', 0, i.entity_version, i.key,
        i.version, 2, 'system', 'moved', 'running', coalesce(i.input, i.output), 1, i.fence, $24::timestamptz
    from i
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, created_at)
    select i.instance, i.bucket, i.org, i.version, 1, 'step_completed', i.left_node, i.left_token, 'system', $24::timestamptz
    from i
    union all
    select i.instance, i.bucket, i.org, i.version, 3, 'step_started', i.node, i.token, 'system', $24::timestamptz
    from i
)
select holdfast.expect('advance_steps', least((select count(*) from i), (select count(*) from w), (select count(*) from c)),
    $26::bigint)

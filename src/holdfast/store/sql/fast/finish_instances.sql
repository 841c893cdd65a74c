-- The plain end, all its tables at once: the last result is in and the only token reaches the end.
with i as (
    update holdfast.instances t set version = u.version, status = 'completed', reason = null, state = '{}',
        data = coalesce(u.data, u.output), waiting_kind = null, waiting_until = null, completed_at = $19::timestamptz,
        updated_at = $19::timestamptz, last_by = $20::uuid
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::jsonb[], $6::int[], $7::text[], $8::uuid[],
        $9::timestamptz[], $10::text[], $11::text[], $12::jsonb[], $13::jsonb[], $14::text[], $15::bigint[], $16::bigint[],
        $17::uuid[], $18::bytea[])
        as u(instance, bucket, org, version, data, hop, token, left_id, left_at, left_node, left_token, chosen, output, node,
            fence, entity_version, step, key)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 1
        and t.updated_at <= $19::timestamptz
    returning u.instance, u.bucket, '0'::text as path, u.org, u.version, u.hop, u.token, u.left_id, u.left_at, u.left_node,
        u.left_token, u.chosen, u.output, u.node, u.fence, u.entity_version, u.step, u.key
), w as (
    delete from holdfast.work t using i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.path = i.path and t.fence = i.fence
        and t.worker is not distinct from $20::uuid
    returning 1
), c as (
    update holdfast.steps t set status = 'completed', outcome = 'completed', chosen_edge_ids = i.chosen, output = i.output,
        closed_version = i.version, closed_ordinal = 0, closed_by = 'system', closed_at = $19::timestamptz
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.left_at and t.id = i.left_id
        and t.closed_at is null
    returning 1
), r as (
    insert into holdfast.step_receipts (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)
    select i.instance, i.bucket, i.token, 'forward', 0, i.org, i.key, i.step, $19::timestamptz from i
), s as (
    insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
        receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, calls, fence, outcome, chosen_edge_ids,
        output, closed_version, closed_ordinal, closed_by, closed_at, created_at)
    select i.instance, i.bucket, i.step, i.org, i.node, 'end', i.path, i.hop, 'forward', 0, i.entity_version, i.key, i.version, 2,
        'system', 'moved', 'completed', i.output, 0, 0, 'completed', '[]', i.output, i.version, 2, 'system',
        $19::timestamptz, $19::timestamptz
    from i
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, created_at)
    select i.instance, i.bucket, i.org, i.version, 1, 'step_completed', i.left_node, i.left_token, 'system', $19::timestamptz
    from i
    union all
    select i.instance, i.bucket, i.org, i.version, 3, 'token_ended', i.node, i.token, 'system', $19::timestamptz
    from i
    union all
    select i.instance, i.bucket, i.org, i.version, 4, 'instance_completed', null, null, 'system', $19::timestamptz
    from i
)
select holdfast.expect('finish_instances', least((select count(*) from i), (select count(*) from w), (select count(*) from c)),
    $21::bigint)

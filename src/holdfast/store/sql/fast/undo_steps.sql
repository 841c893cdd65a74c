-- The plain step backwards, all its tables at once: a compensation is done and the next begins under the same lease.
-- Six updates: each takes from the parameters what it needs, because an update copies the whole row of what it joins.
with i as (
    update holdfast.instances t set version = u.version, state = u.state, updated_at = $22::timestamptz, last_by = $23::uuid
    from unnest($1::uuid[], $2::smallint[], $4::bigint[], $5::jsonb[]) as u(instance, bucket, version, state)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 1
        and t.updated_at <= $22::timestamptz
    returning 1
), w as (
    update holdfast.work t set step_id = u.next, step_created_at = u.at, target = u.queue, fence = u.fence,
        patience = u.patience, deadline_at = $22::timestamptz + u.patience * interval '1 second'
    from unnest($1::uuid[], $2::smallint[], $6::text[], $7::bigint[], $8::timestamptz[], $15::uuid[], $20::text[], $21::real[])
        as u(instance, bucket, path, fence, at, next, queue, patience)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.fence - 1
        and t.worker is not distinct from $23::uuid
    returning 1
), c as (
    update holdfast.steps t set status = 'completed', outcome = 'completed', output = u.output, closed_version = u.version,
        closed_ordinal = 0, closed_by = 'system', closed_at = $22::timestamptz
    from unnest($1::uuid[], $2::smallint[], $4::bigint[], $8::timestamptz[], $9::uuid[], $12::jsonb[])
        as u(instance, bucket, version, at, done, output)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.done
        and num_nulls(t.closed_at) = 1
    returning 1
), n as (
    update holdfast.steps t set status = 'running', calls = 1, fence = u.fence
    from unnest($1::uuid[], $2::smallint[], $7::bigint[], $8::timestamptz[], $15::uuid[]) as u(instance, bucket, fence, at, next)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.next
        and num_nulls(t.closed_at) = 1
    returning 1
), o as (
    update holdfast.steps t set status = 'rolled_back'
    from unnest($1::uuid[], $2::smallint[], $13::uuid[], $14::timestamptz[]) as u(instance, bucket, id, at)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
        and num_nulls(t.closed_at) = 0
    returning 1
), m as (
    update holdfast.steps t set status = 'compensation'
    from unnest($1::uuid[], $2::smallint[], $18::uuid[], $19::timestamptz[]) as u(instance, bucket, id, at)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
        and num_nulls(t.closed_at) = 0
    returning 1
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail, created_at)
    select u.instance, u.bucket, u.org, u.version, x.ordinal, x.type, x.node, x.token, 'system',
        jsonb_build_object('undoes', encode(uuid_send(x.of), 'hex')), $22::timestamptz
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $10::text[], $11::text[], $13::uuid[], $16::text[],
        $17::text[], $18::uuid[])
        as u(instance, bucket, org, version, done_node, done_token, of, next_node, next_token, next_of)
    cross join lateral (values
        (1::smallint, 'compensation_completed', u.done_node, u.done_token, u.of),
        (2::smallint, 'compensation_started', u.next_node, u.next_token, u.next_of)
    ) as x(ordinal, type, node, token, of)
)
select holdfast.expect('undo_steps',
    least((select count(*) from i), (select count(*) from w), (select count(*) from c),
        (select count(*) from n), (select count(*) from o), (select count(*) from m)), $24::bigint)

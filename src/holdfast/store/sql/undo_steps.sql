-- The plain step backwards, all its tables at once: a compensation is done and the next begins under the same lease.
with i as (
    update holdfast.instances t set version = u.version, state = u.state, updated_at = $22::timestamptz, last_by = $23::uuid
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::jsonb[], $6::text[], $7::bigint[], $8::timestamptz[],
        $9::uuid[], $10::text[], $11::text[], $12::jsonb[], $13::uuid[], $14::timestamptz[], $15::uuid[], $16::text[],
        $17::text[], $18::uuid[], $19::timestamptz[], $20::text[], $21::real[])
        as u(instance, bucket, org, version, state, path, fence, at, done, done_node, done_token, output, of, of_at, next,
            next_node, next_token, next_of, next_of_at, queue, patience)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 1
    returning u.instance, u.bucket, u.org, u.version, u.path, u.fence, u.at, u.done, u.done_node, u.done_token, u.output, u.of,
        u.of_at, u.next, u.next_node, u.next_token, u.next_of, u.next_of_at, u.queue, u.patience
), w as (
    update holdfast.work t set step_id = i.next, step_created_at = i.at, target = i.queue, fence = i.fence,
        patience = i.patience, deadline_at = $22::timestamptz + i.patience * interval '1 second'
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.path = i.path and t.fence = i.fence - 1
        and t.worker is not distinct from $23::uuid
    returning 1
), c as (
    update holdfast.steps t set status = 'completed', outcome = 'completed', output = i.output, closed_version = i.version,
        closed_ordinal = 0, closed_by = 'system', closed_at = $22::timestamptz
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.at and t.id = i.done
        and num_nulls(t.closed_at) = 1
    returning 1
), n as (
    update holdfast.steps t set status = 'running', calls = 1, fence = i.fence
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.at and t.id = i.next
        and num_nulls(t.closed_at) = 1
    returning 1
), o as (
    update holdfast.steps t set status = 'rolled_back'
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.of_at and t.id = i.of
        and num_nulls(t.closed_at) = 0
    returning 1
), m as (
    update holdfast.steps t set status = 'compensation'
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.next_of_at and t.id = i.next_of
        and num_nulls(t.closed_at) = 0
    returning 1
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail, created_at)
    select i.instance, i.bucket, i.org, i.version, 1, 'compensation_completed', i.done_node, i.done_token, 'system',
        jsonb_build_object('undoes', encode(uuid_send(i.of), 'hex')), $22::timestamptz
    from i
    union all
    select i.instance, i.bucket, i.org, i.version, 2, 'compensation_started', i.next_node, i.next_token, 'system',
        jsonb_build_object('undoes', encode(uuid_send(i.next_of), 'hex')), $22::timestamptz
    from i
)
select holdfast.expect('undo_steps',
    least((select count(*) from i), (select count(*) from w), (select count(*) from c),
        (select count(*) from n), (select count(*) from o), (select count(*) from m)), $24::bigint)

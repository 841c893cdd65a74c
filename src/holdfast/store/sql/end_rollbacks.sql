-- The plain end backwards, all its tables at once: the last compensation is done and the instance is over.
with i as (
    update holdfast.instances t set version = u.version, status = u.status, reason = u.reason, state = '{}',
        waiting_kind = null, waiting_until = null, completed_at = $18::timestamptz, updated_at = $18::timestamptz,
        last_by = $19::uuid
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::timestamptz[], $10::uuid[], $11::text[], $12::text[], $13::jsonb[], $14::uuid[], $15::timestamptz[], $16::jsonb[],
        $17::jsonb[])
        as u(instance, bucket, org, version, status, reason, path, fence, at, done, done_node, done_token, output, of, of_at,
            told, ended)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 1
    returning u.instance, u.bucket, u.org, u.version, u.status, u.path, u.fence, u.at, u.done, u.done_node, u.done_token,
        u.output, u.of, u.of_at, u.told, u.ended
), w as (
    delete from holdfast.work t using i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.path = i.path and t.fence = i.fence
        and t.worker is not distinct from $19::uuid
    returning 1
), c as (
    update holdfast.steps t set status = 'completed', outcome = 'completed', output = i.output, closed_version = i.version,
        closed_ordinal = 0, closed_by = 'system', closed_at = $18::timestamptz
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.at and t.id = i.done
        and num_nulls(t.closed_at) = 1
    returning 1
), o as (
    update holdfast.steps t set status = 'rolled_back'
    from i
    where t.instance_id = any(array[i.instance]) and t.bucket = i.bucket and t.created_at = i.of_at and t.id = i.of
        and num_nulls(t.closed_at) = 0
    returning 1
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail, created_at)
    select i.instance, i.bucket, i.org, i.version, 1, 'compensation_completed', i.done_node, i.done_token, 'system',
        jsonb_build_object('undoes', encode(uuid_send(i.of), 'hex')), $18::timestamptz
    from i
    union all
    select i.instance, i.bucket, i.org, i.version, 2, 'rollback_completed', null, null, 'system', i.told, $18::timestamptz from i
    union all
    select i.instance, i.bucket, i.org, i.version, 3, 'instance_' || i.status, null, null, 'system', i.ended, $18::timestamptz
    from i
)
select holdfast.expect('end_rollbacks',
    least((select count(*) from i), (select count(*) from w), (select count(*) from c), (select count(*) from o)), $20::bigint)

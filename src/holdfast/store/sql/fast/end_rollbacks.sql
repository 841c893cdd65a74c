-- The plain end backwards, all its tables at once: the last compensation is done and the instance is over.
with i as (
    update holdfast.instances t set version = u.version, status = u.status, reason = u.reason, state = '{}',
        waiting_kind = null, waiting_until = null, completed_at = $18::timestamptz, updated_at = $18::timestamptz,
        last_by = $19::uuid
    from unnest($1::uuid[], $2::smallint[], $4::bigint[], $5::text[], $6::text[]) as u(instance, bucket, version, status, reason)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 1
        and t.updated_at <= $18::timestamptz
    returning 1
), w as (
    delete from holdfast.work t
    using unnest($1::uuid[], $2::smallint[], $7::text[], $8::bigint[]) as u(instance, bucket, path, fence)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.fence
        and t.worker is not distinct from $19::uuid
    returning 1
), c as (
    update holdfast.steps t set status = 'completed', outcome = 'completed', output = u.output, closed_version = u.version,
        closed_ordinal = 0, closed_by = 'system', closed_at = $18::timestamptz
    from unnest($1::uuid[], $2::smallint[], $4::bigint[], $9::timestamptz[], $10::uuid[], $13::jsonb[])
        as u(instance, bucket, version, at, done, output)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.done
        and num_nulls(t.closed_at) = 1
    returning 1
), o as (
    update holdfast.steps t set status = 'rolled_back'
    from unnest($1::uuid[], $2::smallint[], $14::uuid[], $15::timestamptz[]) as u(instance, bucket, id, at)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
        and num_nulls(t.closed_at) = 0
    returning 1
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail, created_at)
    select u.instance, u.bucket, u.org, u.version, x.ordinal, x.type, x.node, x.token, 'system', x.detail, $18::timestamptz
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::text[], $11::text[], $12::text[], $14::uuid[],
        $16::jsonb[], $17::jsonb[])
        as u(instance, bucket, org, version, status, done_node, done_token, of, told, ended)
    cross join lateral (values
        (1::smallint, 'compensation_completed', u.done_node, u.done_token,
            jsonb_build_object('undoes', encode(uuid_send(u.of), 'hex'))),
        (2::smallint, 'rollback_completed', null, null, u.told),
        (3::smallint, 'instance_' || u.status, null, null, u.ended)
    ) as x(ordinal, type, node, token, detail)
)
select holdfast.expect('end_rollbacks',
    least((select count(*) from i), (select count(*) from w), (select count(*) from c), (select count(*) from o)), $20::bigint)

-- Carry instances into the present month: each gets a checkpoint, and each of its open steps a row there, with the same id.
-- It tells since when it is open and what led to it; the row it takes the place of is closed. The instance must be as it was
-- when its lock was taken, and the steps open.
with i as (
    update holdfast.instances t set version = u.version, state = u.state, carried_at = u.moment, updated_at = u.moment
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::timestamptz[], $6::jsonb[])
        as u(instance, bucket, org, version, moment, state)
    where t.id = any(array[u.instance]) and t.bucket = u.bucket and t.version = u.version - 1
    returning 1
), p as (
    insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
        receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, detail, outcome, closed_version,
        closed_ordinal, closed_by, closed_at, created_at)
    select u.instance, u.bucket, u.checkpoint, u.org, '@checkpoint', 'control', '', u.version, 'control', 0, u.entity_version,
        u.key, u.version, 0, 'system', 'checkpoint', 'completed', t.data, u.detail, 'completed', u.version, 0, 'system',
        u.moment, u.moment
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::timestamptz[], $7::uuid[], $8::bytea[], $9::bigint[],
        $10::jsonb[])
        as u(instance, bucket, org, version, moment, checkpoint, key, entity_version, detail)
    join holdfast.instances t on t.id = any(array[u.instance]) and t.bucket = u.bucket
    returning 1
), n as (
    insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
        receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, detail, calls, fence, error, created_at)
    select t.instance_id, t.bucket, t.id, t.org_id, t.node, t.behaviour, t.path, t.hop, t.kind, t.run, t.entity_version,
        t.receipt_key, u.version, u.opened, t.opened_by, 'carried', t.status, t.input,
        jsonb_build_object('before', b.before, 'since', t.created_at) || coalesce(t.detail, '{}'),
        t.calls, t.fence, t.error, u.moment
    from unnest($11::uuid[], $12::smallint[], $13::bigint[], $14::timestamptz[], $15::uuid[], $16::timestamptz[], $18::smallint[])
        as u(instance, bucket, version, moment, id, at, opened)
    join holdfast.steps t on t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at
        and t.id = u.id and num_nulls(t.closed_at) = 1
    left join lateral (
        select jsonb_build_object('node', s.node, 'outcome', s.outcome, 'closed_by', s.closed_by,
            'occurred_at', s.closing -> 'occurred_at',
            'output', case when pg_column_size(s.output) <= 16384 then s.output end) as before
        from holdfast.step_receipts r
        join holdfast.steps s on s.instance_id = any(array[t.instance_id]) and s.created_at = r.created_at and s.id = r.step_id
            and s.bucket = t.bucket
        where r.instance_id = any(array[t.instance_id]) and r.token = t.path || '@' || (t.hop - 1) and r.kind = 'forward'
            and r.bucket = t.bucket
        order by r.run desc limit 1
    ) b on true
    returning 1
), c as (
    update holdfast.steps t set status = 'superseded', outcome = 'carried', closed_version = u.version,
        closed_ordinal = u.closed, closed_by = 'system', closed_at = u.moment
    from unnest($11::uuid[], $12::smallint[], $13::bigint[], $14::timestamptz[], $15::uuid[], $16::timestamptz[], $17::smallint[])
        as u(instance, bucket, version, moment, id, at, closed)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
        and num_nulls(t.closed_at) = 1
    returning 1
), e as (
    insert into holdfast.events (instance_id, bucket, org_id, created_at, version, ordinal, type, actor)
    select u.instance, u.bucket, u.org, u.moment, u.version, 0, 'instance_carried', 'system'
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::timestamptz[])
        as u(instance, bucket, org, version, moment)
)
select holdfast.expect('carry_instances', least((select count(*) from i), (select count(*) from p)), cardinality($1::uuid[])),
    holdfast.expect('carry_instances: opened', (select count(*) from n), cardinality($11::uuid[])),
    holdfast.expect('carry_instances: closed', (select count(*) from c), cardinality($11::uuid[]))

-- A plain start, all its tables at once: the instance is stored and its first step is leased to this worker.
with u as materialized (
    select * from unnest($1::uuid[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::jsonb[], $8::jsonb[],
        $9::jsonb[], $10::text[], $11::jsonb[], $12::text[], $13::text[], $14::text[], $15::text[], $16::uuid[], $17::bytea[],
        $18::text[], $19::real[], $20::timestamptz[])
        as u(id, bucket, org, definition, flow, flow_version, state, data, input, business_key, attributes, created_by, trace,
            actor, node, step, key, queue, patience, ripe_at)
), i as (
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data, input,
        business_key, attributes, created_by, trace, created_at, updated_at, last_by)
    select u.id, u.bucket, u.org, u.definition, u.flow, u.flow_version, 'running', 1, u.state, coalesce(u.data, u.input),
        u.input, u.business_key, u.attributes, u.created_by, u.trace, $21::timestamptz, $21::timestamptz, $22::uuid
    from u
), w as (
    insert into holdfast.work (instance_id, bucket, path, org_id, step_id, step_created_at, queue, target, patience, worker,
        fence, ripe_at, deadline_at)
    select u.id, u.bucket, '0', u.org, u.step, $21::timestamptz, u.queue, u.queue, u.patience, $22::uuid, 1, u.ripe_at,
        $21::timestamptz + u.patience * interval '1 second'
    from u
), r as (
    insert into holdfast.step_receipts (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)
    select u.id, u.bucket, '0@0', 'forward', 0, u.org, u.key, u.step, $21::timestamptz from u
), s as (
    insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
        receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, calls, fence, created_at)
    select u.id, u.bucket, u.step, u.org, u.node, 'work', '0', 0, 'forward', 0, 0, u.key, 1, 1, u.actor, 'started', 'running',
        u.input, 1, 1, $21::timestamptz
    from u
)
insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, created_at)
select u.id, u.bucket, u.org, 1, 0, 'instance_started', null, null, u.actor, $21::timestamptz from u
union all
select u.id, u.bucket, u.org, 1, 2, 'step_started', u.node, '0@0', u.actor, $21::timestamptz from u

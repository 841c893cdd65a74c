-- Write the snapshots of instances that go on under another version of their flow, each over the version it was decided on.
with allowed as materialized (
    select set_config('holdfast.migrating', 'on', true) as migrating
), w as (
    update holdfast.instances t set definition_id = u.definition, flow_version = u.flow_version, version = u.after,
        status = u.status, reason = u.reason, state = u.state, data = coalesce(u.data, t.data),
        waiting_kind = u.waiting_kind, waiting_until = u.waiting_until, last_error = coalesce(u.error, t.last_error),
        error_code = left(coalesce(u.error, t.last_error) ->> 'code', 200),
        error_step = coalesce(u.error_step, case when u.error is null or u.error = t.last_error then t.error_step end),
        completed_at = coalesce(t.completed_at, u.completed_at), entity_version = coalesce(u.entity_version, t.entity_version),
        updated_at = $17::timestamptz, last_by = $18::uuid
    from unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::jsonb[], $8::jsonb[],
        $9::text[], $10::timestamptz[], $11::jsonb[], $12::timestamptz[], $13::text[], $14::bigint[], $15::uuid[], $16::int[])
        as u(id, bucket, before, after, status, reason, state, data, waiting_kind, waiting_until, error, completed_at,
            error_step, entity_version, definition, flow_version), allowed
    where t.id = any(array[u.id]) and t.bucket = u.bucket and t.version = u.before
        and t.updated_at <= $17::timestamptz and allowed.migrating = 'on'
    returning 1
)
select holdfast.expect('migrate_instances', count(*), $19::bigint), set_config('holdfast.migrating', 'off', true) from w

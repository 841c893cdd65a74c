-- Write the new snapshots, each only over the version it was decided on.
with w as (
    update holdfast.instances t set version = u.after, status = u.status, reason = u.reason, state = u.state,
        data = coalesce(u.data, t.data), waiting_kind = u.waiting_kind, waiting_until = u.waiting_until,
        last_error = coalesce(u.error, t.last_error),
        error_code = left(coalesce(u.error, t.last_error) ->> 'code', 200),
        error_step = coalesce(u.error_step, case when u.error is null or u.error = t.last_error then t.error_step end),
        completed_at = coalesce(t.completed_at, u.completed_at), entity_version = coalesce(u.entity_version, t.entity_version),
        updated_at = $15::timestamptz, last_by = $16::uuid
    from unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::jsonb[], $8::jsonb[],
        $9::text[], $10::timestamptz[], $11::jsonb[], $12::timestamptz[], $13::text[], $14::bigint[])
        as u(id, bucket, before, after, status, reason, state, data, waiting_kind, waiting_until, error, completed_at,
            error_step, entity_version)
    where t.id = any(array[u.id]) and t.bucket = u.bucket and t.version = u.before
        and t.updated_at <= $15::timestamptz
    returning 1
)
select holdfast.expect('update_instances', count(*), $17::bigint) from w

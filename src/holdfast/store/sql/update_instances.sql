-- Write the new snapshots, each only over the version it was decided on.
with w as (
    update holdfast.instances t set version = u.after, status = u.status, reason = u.reason, state = u.state,
        data = coalesce(u.data, t.data), waiting_kind = u.waiting_kind, waiting_until = u.waiting_until,
        last_error = coalesce(u.error, t.last_error), completed_at = coalesce(t.completed_at, u.completed_at), updated_at = $13::timestamptz,
        last_by = $14::uuid
    from unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::jsonb[], $8::jsonb[],
        $9::text[], $10::timestamptz[], $11::jsonb[], $12::timestamptz[])
        as u(id, bucket, before, after, status, reason, state, data, waiting_kind, waiting_until, error, completed_at)
    where t.id = any(array[u.id]) and t.bucket = u.bucket and t.version = u.before
    returning 1
)
select holdfast.expect('update_instances', count(*), $15::bigint) from w

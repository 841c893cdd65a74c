-- Dead letters of deliveries that failed. One that fails again after its requeue opens its letter again.
insert into holdfast.dead_letters as l (id, bucket, org_id, instance_id, flow, step, source, envelope, reason, error, attempts,
    worker, created_at)
select u.id, u.bucket, u.org, u.instance, u.flow, u.state, 'ack', u.envelope, u.reason, u.error, u.attempts, $12::uuid,
    $11::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::jsonb[], $8::text[], $9::jsonb[],
    $10::int[])
    as u(id, bucket, org, instance, flow, state, envelope, reason, error, attempts)
on conflict (id, bucket) do update set reason = excluded.reason, error = excluded.error, attempts = excluded.attempts,
    worker = excluded.worker, created_at = excluded.created_at, resolved_at = null, resolution = null, resolved_by = null

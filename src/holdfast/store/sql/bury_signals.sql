-- Move signals that cannot be applied to the dead letters, envelope and reason kept.
with gone as (
    delete from holdfast.signals t using unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::jsonb[])
        as u(instance, bucket, id, reason, error)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.id = u.id
    returning t.*, u.reason, u.error as failure
)
insert into holdfast.dead_letters (id, bucket, org_id, instance_id, source, envelope, reason, error, attempts, worker, created_at)
select g.id, g.bucket, g.org_id, g.instance_id, 'signal',
    jsonb_build_object('kind', g.kind, 'payload', g.payload, 'ripe_at', g.ripe_at, 'trace', g.trace),
    g.reason, g.failure, g.attempts + (g.reason <> 'ATTEMPTS_EXHAUSTED')::int, $6::uuid, (select holdfast.clock())
from gone g
on conflict do nothing

-- Enqueue signals; one that is already there is the same one.
insert into holdfast.signals (instance_id, bucket, id, org_id, kind, payload, trace, ripe_at)
select u.instance, u.bucket, u.id, u.org, u.kind, u.payload, u.trace, coalesce($8::timestamptz, (select holdfast.clock()))
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::jsonb[], $7::text[])
    as u(instance, bucket, id, org, kind, payload, trace)
on conflict do nothing

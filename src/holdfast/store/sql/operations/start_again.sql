-- Let an instance that was stored and never begun begin.
insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
values ($1::uuid, $1::uuid, $2::smallint, $3::text, 'started', '{}', $4::timestamptz)
on conflict do nothing
returning id

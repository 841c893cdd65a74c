-- Remember what was emitted or received under which key; a second one is an error.
insert into holdfast.outbox_receipts (instance_id, bucket, source, key, org_id, hash, answer, created_at)
select u.*, $8::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::jsonb[])
    as u(instance, bucket, source, key, org, hash, answer)

-- The exactly-once gate: a second receipt for the same visit is an error, never skipped.
insert into holdfast.step_receipts (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)
select u.*, $9::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::bytea[], $8::uuid[])
    as u(instance, bucket, token, kind, run, org, key, step)

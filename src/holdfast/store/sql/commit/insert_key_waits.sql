-- Register waits for keyed events.
insert into holdfast.key_waits (org_id, event, key, instance_id, token, bucket, instance_bucket, step_id, created_at)
select u.*, $9::timestamptz
from unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::smallint[], $7::smallint[], $8::uuid[])
    as u(org, event, key, instance, token, bucket, instance_bucket, step)
on conflict do nothing

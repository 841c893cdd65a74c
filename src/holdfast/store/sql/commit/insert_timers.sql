-- Set timers; one that is already set for the same wait is replaced.
insert into holdfast.timers (instance_id, bucket, id, org_id, purpose, wait, payload, due_at, created_at)
select u.*, $9::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::timestamptz[])
    as u(instance, bucket, id, org, purpose, wait, payload, due)
on conflict (instance_id, id, bucket) do update set due_at = excluded.due_at

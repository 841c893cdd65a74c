-- Set the timer of a wait again, for the moment it was set for.
insert into holdfast.timers (instance_id, bucket, id, org_id, purpose, wait, payload, due_at, created_at)
values ($1::uuid, $2::smallint, $3::uuid, $4::text, $5::text, $6::text, $7::jsonb, $8::timestamptz, $9::timestamptz)
on conflict do nothing
returning id

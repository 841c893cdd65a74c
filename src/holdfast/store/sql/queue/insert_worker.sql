-- A worker process comes to life under an id of its own.
insert into holdfast.workers (id, host, pid, version, queues, origins, started_at, lease_until)
values ($2::uuid, $3::text, $4::int, $5::text, $1::text[], $7::jsonb, holdfast.clock(), clock_timestamp() + $6::real * interval '1 second')

-- A worker process comes to life under an id of its own.
insert into holdfast.workers (id, host, pid, version, queues, started_at, lease_until)
values ($2::uuid, $3::text, $4::int, $5::text, $1::text[], holdfast.clock(), clock_timestamp() + $6::real * interval '1 second')

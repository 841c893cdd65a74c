-- Only a lease that is still good is renewed: a dead incarnation is never revived. It may serve more than it did before.
update holdfast.workers set lease_until = clock_timestamp() + $3::real * interval '1 second', queues = $1::text[],
    origins = $4::jsonb
where id = $2::uuid and lease_until > clock_timestamp() and stopped_at is null
returning id

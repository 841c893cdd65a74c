-- Only a lease that is still good is renewed: a dead incarnation is never revived.
update holdfast.workers set lease_until = clock_timestamp() + $2::real * interval '1 second'
where id = $1::uuid and lease_until > clock_timestamp() and stopped_at is null
returning id

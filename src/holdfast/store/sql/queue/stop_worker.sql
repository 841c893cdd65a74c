-- A worker leaves in order; what it still holds is free at once.
update holdfast.workers set lease_until = clock_timestamp(), stopped_at = clock_timestamp() where id = $1::uuid

-- Take the turn to probe a consumer that could not be reached; no row: it was another worker's, or it is reached again.
update holdfast.consumer_beats t set reachable_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
where t.consumer_id = $1::uuid and t.bucket = $2::smallint and t.reachable_at <= clock_timestamp()
returning t.consumer_id

-- Note whether a consumer that is pushed to was reached. One that was not is probed now and then, and sent nothing else.
update holdfast.consumer_beats t set
    beat_at = case when $3::boolean then clock_timestamp() else t.beat_at end,
    reachable_at = case when not $3::boolean then clock_timestamp() + $4::bigint * interval '1 microsecond' end,
    down_since = case when not $3::boolean then coalesce(t.down_since, clock_timestamp()) end
where t.consumer_id = $1::uuid and t.bucket = $2::smallint

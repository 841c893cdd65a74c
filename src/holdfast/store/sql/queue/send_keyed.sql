-- Send an event to every wait with a key, those that open later included.
select holdfast.signal_key($1::text, $2::text, $3::jsonb, $4::uuid, $5::text, $6::text, $7::bigint * interval '1 microsecond')

-- Send an event to one instance through the queue: now, or when its due time has come.
select holdfast.signal($2::uuid, $3::text, $4::jsonb, $5::uuid, $6::text, $7::text, $8::text, $9::text, $10::bigint,
    $11::timestamptz, $12::bigint * interval '1 microsecond', $1::text[])

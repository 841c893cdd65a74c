-- Send an event to one instance in the caller's transaction; the signal's id.
select holdfast.signal($1::uuid, $2::text, $3::jsonb, $4::uuid, $5::text, $6::text, $7::text, $8::text, $9::bigint,
    $10::timestamptz, $11::bigint * interval '1 microsecond', array(select jsonb_array_elements_text($12::jsonb)))::text

-- Send an event to a machine in the caller's transaction; the id of its instance.
select holdfast.trigger($1::text, $2::text, $3::text, $4::text, $5::jsonb, $6::text, $7::text, $8::int, $9::int, $10::boolean,
    $11::timestamptz, $12::text, array(select jsonb_array_elements_text($13::jsonb)), $14::text)::text

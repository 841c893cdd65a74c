-- Send a decision on a task in the caller's transaction; the signal's id.
select holdfast.decide($1::uuid, $2::text, $3::text, $4::jsonb, $5::text, $6::uuid, $7::text,
    array(select jsonb_array_elements_text($8::jsonb)), $9::bigint,
    array(select jsonb_array_elements_text($10::jsonb)))::text

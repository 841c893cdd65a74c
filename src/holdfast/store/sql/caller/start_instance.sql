-- Store a pending instance in the caller's transaction; its id.
select holdfast.start($1::text, $2::jsonb, $3::text, $4::int, $5::text, $6::text, $7::text, $8::jsonb, $9::text)::text

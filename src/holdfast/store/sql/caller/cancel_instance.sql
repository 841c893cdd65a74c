-- Ask an instance to stop in the caller's transaction; the signal's id.
select holdfast.cancel($1::uuid, $2::text, $3::text, $4::text)::text

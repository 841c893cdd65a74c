-- Store a rebuilt snapshot over the version it was made from.
update holdfast.instances t set version = $4::bigint, status = $5::text, reason = $6::text, state = $7::jsonb,
    data = $8::jsonb, waiting_kind = $9::text, waiting_until = $10::timestamptz, updated_at = $11::timestamptz,
    completed_at = case when $12::bool then $11::timestamptz end
where t.id = $1::uuid and t.bucket = $2::smallint and t.version = $3::bigint
returning t.version

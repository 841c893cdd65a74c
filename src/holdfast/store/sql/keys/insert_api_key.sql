-- Store a new key of an organisation, once; it lasts for so many microseconds, null: until it is revoked.
with moment as materialized (select holdfast.clock() as now)
insert into holdfast.api_keys (prefix, org_id, name, subject, partition, digest, roles, capabilities, scopes, created_by,
    created_at, expires_at)
select $1::text, $2::text, $3::text, $4::text, $5::text, $6::bytea, $7::jsonb, $8::jsonb, $9::jsonb, $10::text, c.now,
    c.now + $11::bigint * interval '1 microsecond'
from moment c
on conflict (prefix) do nothing

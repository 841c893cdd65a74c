-- Publish a patch under its number; raises where another took the number first.
with made as (
    insert into holdfast.definitions (id, org_id, kind, name, version, entity_type, status, source, patches, base_ref, hash,
        compiler_version, created_by, created_at, published_at)
    values ($1::uuid, $2::text, 'org_patch', $3::text, $4::int, $5::text, 'published', $6::jsonb, $7::jsonb, $8::jsonb,
        $9::text, $10::text, $11::text, holdfast.clock(), holdfast.clock())
    on conflict (org_id, kind, name, version) do nothing
    returning id
)
select holdfast.expect('publish', (select count(*) from made), 1)

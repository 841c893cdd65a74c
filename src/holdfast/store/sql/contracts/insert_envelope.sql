-- Publish the envelope of a contract; raises where this version is there already.
with made as (
    insert into holdfast.definitions (id, org_id, kind, name, version, entity_type, status, is_default, source, nodes, edges,
        slots, hash, compiler_version, created_by, created_at, published_at)
    values ($1::uuid, $2::text, 'envelope', $3::text, $4::int, $5::text, 'published', true, $6::jsonb, $7::jsonb, $8::jsonb,
        $9::jsonb, $10::text, $11::text, $12::text, holdfast.clock(), holdfast.clock())
    on conflict (org_id, kind, name, version) do nothing
    returning id
)
select holdfast.expect('publish', (select count(*) from made), 1)

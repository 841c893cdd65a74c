-- Publish the graph compiled of an envelope and a patch; raises where another took the number first.
with made as (
    insert into holdfast.definitions (id, org_id, kind, name, version, entity_type, status, is_default, nodes, edges, base_ref,
        compiled, hash, compiler_version, created_by, created_at, published_at)
    values ($1::uuid, $2::text, 'effective', $3::text, $4::int, $5::text, 'published', $6::boolean, $7::jsonb, $8::jsonb,
        $9::jsonb, $10::jsonb, $11::text, $12::text, $13::text, holdfast.clock(), holdfast.clock())
    on conflict (org_id, kind, name, version) do nothing
    returning id
)
select holdfast.expect('publish', (select count(*) from made), 1)

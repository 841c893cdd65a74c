-- Publish a definition; the same version published before is left as it is.
insert into holdfast.definitions (id, org_id, kind, name, version, status, source, nodes, edges, compiled, hash,
    compiler_version, created_by, apps, shared, created_at, published_at)
values ($1::uuid, $2::text, $3::text, $4::text, $5::int, 'published', $6::jsonb, $7::jsonb, $8::jsonb, $9::jsonb, $10::text,
    $11::text, $12::text, $13::jsonb, array(select jsonb_array_elements_text($14::jsonb)),
    holdfast.clock(), holdfast.clock())
on conflict (org_id, kind, name, version) do nothing
returning id

-- Publish a version of a decision table, unless it is there already.
insert into holdfast.decision_tables (org_id, name, version, content, hash, created_by, reason, published_at)
values ($1::text, $2::text, $3::int, $4::jsonb, $5::text, $6::text, $7::text, holdfast.clock())
on conflict (org_id, name, version) do nothing
returning version
